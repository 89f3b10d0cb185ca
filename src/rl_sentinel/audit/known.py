"""Known findings: one TOML format for what is known, accepted and expected."""

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Literal

import pydantic
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from rl_sentinel.core.errors import SentinelError


class Entry(pydantic.BaseModel):
    """One signature with its reason, the releases that it was seen in, and the places that show it.

    ``also`` is what a report lists as ``also through``; ``*`` stands for any text. Without the key any place may
    be folded under the finding.
    """

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    signature: str
    reason: str = ""
    link: str = ""
    releases: str = ""
    level: Literal["", "fault", "contested", "hazard"] = ""
    also: list[str] | None = None


class KnownFile(pydantic.BaseModel):
    """A file of known findings; ``not_applicable`` and ``errored`` are for an expectation."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    finding: list[Entry] = []
    not_applicable: int | None = None
    errored: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A finding of an audit, as a known file has it, and the release it was seen in; empty where none is stated."""

    signature: str
    level: str
    also: tuple[str, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Known:
    """A known finding; an ``accepted`` one is the user's own and leaves the exit status alone.

    ``source`` is whose entry it is: the user's file, or words for what ships with this package.
    """

    signature: str
    reason: str
    link: str
    releases: str
    level: str
    accepted: bool
    source: str = ""
    also: tuple[str, ...] | None = None

    def names(self, signature: str) -> bool:
        """Whether the entry is of this finding, in whichever release."""
        return fnmatchcase(signature, self.signature)

    def covers(self, version: str) -> bool:
        """Whether the entry speaks of this release; of what states none, if its range has no end."""
        specifiers = SpecifierSet(self.releases, prereleases=True)
        try:
            return Version(version) in specifiers
        except InvalidVersion:
            return all(s.operator in _OPEN for s in specifiers)

    def shows_through(self, place: str) -> bool:
        """Whether a place is one of those through which the finding is known to show."""
        return self.also is None or any(_matches(place, pattern) for pattern in self.also)


#: Whose the entries are that come with this package.
SHIPPED = "ships with RL-Sentinel"

#: Comparisons that leave the range of releases without an upper end.
_OPEN = frozenset({">=", ">", "!="})


def _matches(place: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), place) is not None


#: What a file is called by the option that names it.
_KINDS = {"--known": "known", "--expect": "expectation"}


def read(path: Path, option: str = "--known") -> KnownFile:
    """Read a file of known findings, or of expected ones, by the option that names it.

    Raises:
        SentinelError: one line that names the file, the key and the way out.
    """
    try:
        file = KnownFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        for entry in file.finding:
            SpecifierSet(entry.releases)
    except OSError as error:
        way = "name one that is there" + (
            ", or write it with --known FILE --known-update" if option == "--known" else ""
        )
        raise SentinelError(f"{_KINDS[option]} file {path} cannot be read ({error.strerror}): {way}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, InvalidSpecifier, RecursionError) as error:
        raise SentinelError(
            f"{_KINDS[option]} file {path} is malformed ({error}), expected TOML of [[finding]] tables"
        ) from error
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"])
        keys = ", ".join(Entry.model_fields)
        raise SentinelError(f"{_KINDS[option]} file {path}[{where}]: {first['msg']}, a finding has {keys}") from error
    return file


def shipped(framework: str) -> list[Known]:
    """What ships with this package for a framework: it annotates, and accepts nothing."""
    file = resources.files("rl_sentinel") / "known" / f"{framework}.toml"
    if not file.is_file():
        return []
    with resources.as_file(file) as path:
        return entries(read(path), accepted=False, source=SHIPPED)


def entries(file: KnownFile, *, accepted: bool, source: str = "") -> list[Known]:
    """The entries of a file, as known findings; ``source`` says whose they are."""
    return [
        Known(
            e.signature,
            " ".join(e.reason.split()),
            e.link,
            e.releases,
            e.level,
            accepted,
            source,
            None if e.also is None else tuple(e.also),
        )
        for e in file.finding
    ]


def stale(known: Sequence[Known], seen: Iterable[str], framework: str, version: str) -> list[str]:
    """Signatures of this framework that should have appeared in this release and did not."""
    there = set(seen)
    mine = [k for k in known if k.signature.startswith(f"{framework}:") and version and k.covers(version)]
    return [k.signature for k in mine if not any(fnmatchcase(s, k.signature) for s in there)]


def written(seen: Iterable[tuple[str, str, Sequence[str]]], counts: dict[str, int] | None = None) -> str:
    """A known file of signatures with levels and folded places, as text; with counts it is an expectation."""
    lines = [f"{k} = {counts[k]}" for k in ("not_applicable", "errored")] if counts else []
    for signature, level, also in sorted((s, v, tuple(a)) for s, v, a in seen):
        lines += ["", "[[finding]]", f"signature = {_quoted(signature)}", f'level = "{level}"']
        lines += ["also = [", *(f"    {_quoted(place)}," for place in also), "]"] if also else ["also = []"]
    return "\n".join(lines).strip() + "\n"


def updated(old: KnownFile, seen: Sequence[Seen]) -> str:
    """The text of a user's own file after an audit: what was seen, with the reasons that were given for it before.

    The range of releases grows by the one that was audited. Entries that did not appear are kept: a full audit says
    which of them are stale.
    """
    before = {e.signature: e for e in old.finding}
    now = {s.signature: _seen(s, before.get(s.signature)) for s in seen}
    tables = [_table(e) for e in sorted((before | now).values(), key=lambda e: e.signature)]
    return "\n\n".join(tables) + "\n" if tables else ""


def _seen(found: Seen, old: Entry | None) -> Entry:
    old = old or Entry(signature=found.signature)
    return old.model_copy(
        update={
            "level": found.level,
            "also": sorted(found.also),
            "releases": _widened(old, found.version),
        }
    )


def _widened(old: Entry, version: str) -> str:
    """The range that an entry had, and this release where it states one."""
    known = entries(KnownFile(finding=[old]), accepted=True)[0]
    bounds = [s.version for s in SpecifierSet(old.releases) if s.operator in ("==", ">=", "<=")]
    if old.releases and (known.covers(version) or not bounds):
        return old.releases
    try:
        numbers = sorted(Version(v) for v in (*bounds, version))
    except InvalidVersion:
        return old.releases
    return f"=={version}" if numbers[0] == numbers[-1] else f">={numbers[0]},<={numbers[-1]}"


def _table(entry: Entry) -> str:
    said = {"signature": entry.signature, "reason": entry.reason, "link": entry.link}
    said |= {"releases": entry.releases, "level": entry.level}
    lines = ["[[finding]]", *(f"{k} = {_quoted(v)}" for k, v in said.items() if v)]
    if entry.also:
        lines += ["also = [", *(f"    {_quoted(place)}," for place in entry.also), "]"]
    elif entry.also is not None:
        lines.append("also = []")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # TOML's basic strings have the escapes of JSON
