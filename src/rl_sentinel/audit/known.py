"""Known findings: one TOML format for what is known, accepted and expected."""

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
    """One signature with its reason, and the releases that it was seen in."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    signature: str
    reason: str = ""
    link: str = ""
    releases: str = ""
    level: Literal["", "fault", "contested", "hazard"] = ""


class KnownFile(pydantic.BaseModel):
    """A file of known findings; ``not_applicable`` and ``errored`` are for an expectation."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    finding: list[Entry] = []
    not_applicable: int | None = None
    errored: int | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """A known finding; an ``accepted`` one is the user's own and leaves the exit status alone."""

    signature: str
    reason: str
    link: str
    releases: str
    level: str
    accepted: bool

    def covers(self, version: str) -> bool:
        """Whether the entry speaks of this release; of a checkout it always may."""
        if not self.releases or not version:
            return True
        try:
            return Version(version) in SpecifierSet(self.releases, prereleases=True)
        except InvalidVersion:
            return True


def read(path: Path) -> KnownFile:
    """Read a file of known findings.

    Raises:
        SentinelError: one line that names the file, the key and the way out.
    """
    try:
        file = KnownFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        for entry in file.finding:
            SpecifierSet(entry.releases)
    except OSError as error:
        way = "name one that is there, or write it with --known FILE --known-update"
        raise SentinelError(f"known file {path} cannot be read ({error.strerror}): {way}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, InvalidSpecifier, RecursionError) as error:
        raise SentinelError(f"known file {path} is malformed ({error}), expected TOML of [[finding]] tables") from error
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"])
        keys = ", ".join(Entry.model_fields)
        raise SentinelError(f"known file {path}[{where}]: {first['msg']}, a finding has {keys}") from error
    return file


def shipped(framework: str) -> list[Known]:
    """What ships with this package for a framework: it annotates, and accepts nothing."""
    file = resources.files("rl_sentinel") / "known" / f"{framework}.toml"
    if not file.is_file():
        return []
    with resources.as_file(file) as path:
        return entries(read(path), accepted=False)


def entries(file: KnownFile, *, accepted: bool) -> list[Known]:
    """The entries of a file, as known findings."""
    return [Known(e.signature, " ".join(e.reason.split()), e.link, e.releases, e.level, accepted) for e in file.finding]


def stale(known: Sequence[Known], seen: Iterable[str], framework: str, version: str) -> list[str]:
    """Signatures of this framework that should have appeared in this release and did not."""
    there = set(seen)
    mine = [k for k in known if k.signature.startswith(f"{framework}:") and version and k.covers(version)]
    return [k.signature for k in mine if not any(fnmatchcase(s, k.signature) for s in there)]


def written(signatures: Iterable[tuple[str, str]], counts: dict[str, int] | None = None) -> str:
    """A known file of signatures with levels, as text; with counts it is an expectation."""
    lines = [f"{k} = {counts[k]}" for k in ("not_applicable", "errored")] if counts else []
    for signature, level in sorted(signatures):
        text = re.sub(r'(["\\])', r"\\\1", signature)
        lines += ["", "[[finding]]", f'signature = "{text}"', f'level = "{level}"']
    return "\n".join(lines).strip() + "\n"
