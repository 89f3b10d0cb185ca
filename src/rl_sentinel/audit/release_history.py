"""Compare audits of several releases: in which release each law holds, is broken, absent or errored."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from rl_sentinel.audit.findings import LEVELS, Audit, findings
from rl_sentinel.audit.verdict_changes import Results, results

Cell = Literal["found", "holds", "absent", "errored", "not applicable", "not run"]


class Place(NamedTuple):
    """A row of the table: a law at a boundary."""

    law: str
    boundary: str


@dataclass(frozen=True, slots=True)
class Release:
    """A column of the table; ``error`` is set if the release could not be audited.

    ``causes`` are the places of findings, except places that are folded under another finding.
    """

    name: str
    target: str
    error: str = ""
    results: Results = field(default_factory=dict)
    causes: tuple[Place, ...] = ()


def audited_release(name: str, target: str, audit: Audit, level: str) -> Release:
    """The column of a release from its audit; findings count at ``level`` or worse."""
    visible = [f for f in findings(audit, (), "") if LEVELS.index(f.level) <= LEVELS.index(level)]
    return Release(name, target, "", results(audit), tuple(Place(f.law, f.boundary) for f in visible))


def places(releases: Iterable[Release]) -> list[Place]:
    """The rows of the table: every place where some release has a finding."""
    return sorted({place for release in releases for place in release.causes})


def cell(release: Release, place: Place, level: str) -> tuple[Cell, str]:
    """The outcome of a release at a place over all settings, and the sentence of the finding or the reason.

    A finding below ``level`` counts as ``holds``, and so does a law that holds under one setting and is errored
    under others.
    """
    if release.error:
        return "errored", release.error
    here = {p: r for p, r in release.results.items() if p.boundary == place.boundary and p.law in (place.law, "*")}
    results = list(here.values())
    lacking = [r.reason for p, r in here.items() if p.law == "*" and r.outcome == "not-applicable"]
    if len(lacking) == len(results):
        bound = any(p.boundary == place.boundary and p.law != "*" for p in release.results)
        return ("not run" if bound else "absent"), "".join(lacking[:1])
    reason = next((r.reason for r in results if r.is_finding(level)), None)
    if reason is not None:
        return "found", reason
    if any(r.outcome in ("holds", "broken") for r in results):
        return "holds", ""
    errors = [r.reason for r in results if r.outcome == "errored"]
    if errors:
        return "errored", errors[0]
    return "not applicable", results[0].reason


def table(releases: Sequence[Release], level: str) -> dict[Place, list[tuple[Cell, str]]]:
    """All rows, each with a cell per release."""
    return {place: [cell(release, place, level) for release in releases] for place in places(releases)}
