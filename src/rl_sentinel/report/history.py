"""The report of ``history``: a table of findings by release, in blocks of at most 80 columns, or JSON."""

from collections.abc import Sequence
from typing import Any

from rl_sentinel.audit.release_history import Release, table
from rl_sentinel.report.formatting import WIDTH, counted, one_line, short_name, wrapped

#: Widths of the law and of the function in a row.
_LAW, _FUNCTION = 8, 28


def as_text(target: str, releases: Sequence[Release], level: str) -> list[str]:
    """Lines of the table; releases that could not be audited follow, each with its reason."""
    rows = table(releases, level)
    heading = f"{target}: {counted(len(rows), 'finding')} in {counted(len(releases), 'release')}"
    lines = [*wrapped(heading)]
    width = max(11, 2 + max(len(release.name) for release in releases))
    size = max(1, (WIDTH - _LAW - _FUNCTION) // width)
    for first in range(0, len(releases) if rows else 0, size):
        block = range(first, min(first + size, len(releases)))
        names = "".join(f"{releases[n].name:<{width}}" for n in block)
        lines += ["", f"{'law':<{_LAW}}{'function':<{_FUNCTION}}{names}".rstrip()]
        for place, cells in rows.items():
            function = one_line(short_name(place.boundary), _FUNCTION - 1)
            shown = "".join(f"{cells[n][0]:<{width}}" for n in block)
            lines.append(f"{place.law:<{_LAW}}{function:<{_FUNCTION}}{shown}".rstrip())
    failed = [f"{r.target} could not be audited: {one_line(r.error)}" for r in releases if r.error]
    return [*lines, *([""] if failed else []), *(line for text in failed for line in wrapped(text, hanging="  "))]


def as_json(target: str, releases: Sequence[Release], level: str) -> dict[str, Any]:
    """One object: the releases, and for each finding a cell per release."""
    rows = [
        {
            **place._asdict(),
            "releases": {
                release.name: {"cell": word, "reason": reason}
                for release, (word, reason) in zip(releases, cells, strict=True)
            },
        }
        for place, cells in table(releases, level).items()
    ]
    columns = [{"name": r.name, "target": r.target, "error": r.error} for r in releases]
    return {"target": target, "level": level, "releases": columns, "findings": rows}
