"""Read and write TOML files of known findings and of expected findings."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

import pydantic
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.paths import expanded
from rl_sentinel.core.phrasing import expected, nearest, shortened


class Entry(pydantic.BaseModel):
    """One finding: its signature, a reason, the releases that have it, and other places with the same cause.

    ``also`` lists further places with the same cause, as the JSON report does. If it is missing, any place may be
    folded under the finding. In a known file, ``level`` replaces the level of the audit if ``releases`` has an upper
    bound; in an expectation file it is the expected level. ``fix`` is a change of the framework's code that repairs the
    newest of these releases.
    """

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    signature: str
    reason: str = ""
    link: str = ""
    fix: str = ""
    releases: str = ""
    level: Literal["", "fault", "contested", "hazard"] = ""
    also: list[str] | None = None

    @pydantic.field_validator("signature")
    @classmethod
    def _names_one_finding(cls, signature: str) -> str:
        if "*" in signature:
            message = f"{signature!r} contains *, expected the whole signature of one finding: * is not a wildcard here"
            raise ValueError(message)
        return signature


class KnownFile(pydantic.BaseModel):
    """A file of known findings; an expectation file may also have counts of pairs, and ``refused``.

    ``refused`` lists the pairs for which the target raised an exception for all cases, with its class.
    """

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    finding: list[Entry] = []
    not_applicable: int | None = None
    errored: int | None = None
    refused: list[str] | None = None


@dataclass(frozen=True, slots=True)
class AuditedFinding:
    """A finding in the form of a known file; ``version`` is empty if the target states no release."""

    signature: str
    level: str
    also: tuple[str, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Known:
    """A known finding; an ``accepted`` finding is in the user's file, and does not make the exit status 1.

    ``source`` is the user's file, or a text for entries of this package.
    """

    signature: str
    reason: str
    link: str
    releases: str
    level: str
    accepted: bool
    source: str = ""
    also: tuple[str, ...] | None = None
    fix: str = ""

    def covers(self, version: str) -> bool:
        """Whether ``releases`` includes this release; an unknown release is in every range without an upper bound."""
        specifiers = SpecifierSet(self.releases, prereleases=True)
        try:
            return Version(version) in specifiers
        except InvalidVersion:
            return self._open

    def sets_level(self, version: str) -> bool:
        """Whether ``level`` is used for this release: only if a range with an upper bound includes it."""
        return bool(self.level) and not self._open and self.covers(version)

    @property
    def _open(self) -> bool:
        return all(s.operator in _OPEN for s in SpecifierSet(self.releases))

    def includes(self, place: str) -> bool:
        """Whether the entry lists this place, or has no list of places."""
        return self.also is None or place in self.also


#: Source of the entries of this package.
SHIPPED = "built-in list"

#: Comparison operators without an upper bound.
_OPEN = frozenset({">=", ">", "!="})


#: Option -> name of the file's kind in messages.
_KINDS = {"--known": "file of known findings", "--expect": "expectation file"}


def read(path: Path, option: str = "--known") -> KnownFile:
    """Read the file of known or expected findings that an option names.

    Raises:
        SentinelError: one line if the file cannot be read or is invalid.
    """
    path = expanded(str(path), _KINDS[option])
    try:
        file = KnownFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        for number, entry in enumerate(file.finding):
            _require_specifier(f"{_KINDS[option]} {path}[finding.{number}.releases]", entry.releases)
    except OSError as error:
        fix = "name an existing file" if isinstance(error, FileNotFoundError) else "name a readable file"
        fix += ", or write one with --known FILE --known-update" if option == "--known" else ""
        raise SentinelError(f"{_KINDS[option]} {path} cannot be read ({error.strerror}): {fix}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SentinelError(
            f"{_KINDS[option]} {path} is malformed ({error}), expected TOML of [[finding]] tables"
        ) from error
    except pydantic.ValidationError as error:
        raise SentinelError(f"{_KINDS[option]} {path}{_reason(error)}") from error
    return file


def _require_specifier(place: str, releases: str) -> None:
    """Require a version specifier.

    Raises:
        SentinelError: one line that begins with the place.
    """
    try:
        SpecifierSet(releases)
    except InvalidSpecifier as error:
        raise SentinelError(
            f"{place} is {releases!r}, expected a version specifier, such as '>=1' or '<=1.0.4'"
        ) from error


def _reason(error: pydantic.ValidationError) -> str:
    """The key of the first wrong entry, in brackets, and the error; unknown keys come first."""
    errors = error.errors()
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    place = [str(p) for p in first["loc"]]
    key = f"[{'.'.join(place)}]"
    if first["type"] == "extra_forbidden":
        kind = KnownFile if len(place) == 1 else Entry
        return f"{key} is unknown, {nearest(place[-1], kind.model_fields)}"
    if first["type"] == "missing":
        return f"{key} is missing, expected a value in each [[finding]]"
    if first["type"] == "value_error":
        return f"{key}: {first['ctx']['error']}"
    return f"{key} is {shortened(first['input'])}{expected(first['msg'])}"


def shipped(framework: str) -> list[Known]:
    """Known findings of a framework that ship with this package; they annotate findings but do not accept them."""
    file = resources.files("rl_sentinel") / "known" / f"{framework}.toml"
    if not file.is_file():
        return []
    with resources.as_file(file) as path:
        return entries(read(path), accepted=False, source=SHIPPED)


def entries(file: KnownFile, *, accepted: bool, source: str = "") -> list[Known]:
    """The entries of a file as known findings; ``source`` names the file."""
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
            e.fix.strip(),
        )
        for e in file.finding
    ]


def stale(
    known: Sequence[Known], signatures: Iterable[str], called: Iterable[str], framework: str, version: str
) -> list[str]:
    """Signatures of findings that a known file lists for this release, but the audit did not report.

    ``called`` are the boundaries that could be called; entries of a module without such a boundary are not stale. The
    list is empty if ``version`` is.
    """
    found_signatures, modules = set(signatures), {path.rpartition(".")[0] for path in called}
    applicable = [k for k in known if k.signature.startswith(f"{framework}:") and version and k.covers(version)]
    return [
        k.signature
        for k in applicable
        if k.signature not in found_signatures and k.signature.split(":")[2].rpartition(".")[0] in modules
    ]


def expectation_text(
    findings: Iterable[tuple[str, str, Sequence[str]]],
    counts: Mapping[str, int] | None = None,
    refused: Sequence[str] = (),
) -> str:
    """The text of a file for ``--expect``: findings with levels and folded places; with counts, also ``refused``."""
    lines = [f"{k} = {counts[k]}" for k in ("not_applicable", "errored")] if counts else []
    if counts:
        lines += (
            ["refused = [", *(f"    {_quoted(reason)}," for reason in refused), "]"] if refused else ["refused = []"]
        )
    for signature, level, also in sorted((s, v, tuple(a)) for s, v, a in findings):
        lines += ["", "[[finding]]", f"signature = {_quoted(signature)}", f'level = "{level}"']
        lines += _list("also", also)
    return "\n".join(lines).strip() + "\n"


def updated_text(old: KnownFile, findings: Sequence[AuditedFinding]) -> str:
    """The updated text of a user's known file after an audit; existing reasons are kept.

    The range of releases is extended to the audited release. Entries that were not found are kept; a full audit prints
    which of them are stale.
    """
    old_entries = {e.signature: e for e in old.finding}
    new_entries = {s.signature: _updated_entry(s, old_entries.get(s.signature)) for s in findings}
    tables = [_table(e) for e in sorted((old_entries | new_entries).values(), key=lambda e: e.signature)]
    return "\n\n".join(tables) + "\n" if tables else ""


def _updated_entry(finding: AuditedFinding, old: Entry | None) -> Entry:
    old = old or Entry(signature=finding.signature)
    return old.model_copy(
        update={
            "level": finding.level,
            "also": sorted(finding.also),
            "releases": _widened_releases(old, finding.version),
        }
    )


def _widened_releases(old: Entry, version: str) -> str:
    """The range of an entry, extended to this release if its version is known."""
    entry = entries(KnownFile(finding=[old]), accepted=True)[0]
    bounds = [s.version for s in SpecifierSet(old.releases) if s.operator in ("==", ">=", "<=")]
    if old.releases and (entry.covers(version) or not bounds):
        return old.releases
    try:
        numbers = sorted(Version(v) for v in (*bounds, version))
    except InvalidVersion:
        return old.releases
    return f"=={version}" if numbers[0] == numbers[-1] else f">={numbers[0]},<={numbers[-1]}"


def _table(entry: Entry) -> str:
    values = {"signature": entry.signature, "reason": entry.reason, "link": entry.link, "fix": entry.fix}
    values |= {"releases": entry.releases, "level": entry.level}
    lines = ["[[finding]]", *(f"{k} = {_quoted(v)}" for k, v in values.items() if v)]
    if entry.also is not None:
        lines += _list("also", entry.also)
    return "\n".join(lines)


def _list(key: str, texts: Sequence[str]) -> list[str]:
    """The lines of a TOML list with one text per line."""
    return [f"{key} = [", *(f"    {_quoted(text)}," for text in texts), "]"] if texts else [f"{key} = []"]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # JSON escapes are valid in TOML's basic strings
