"""The HTML report: one self-contained page, with the tensors of each finding as colored grids."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined

from rl_sentinel import __version__
from rl_sentinel.audit.causes import group_by_cause
from rl_sentinel.audit.findings import Finding
from rl_sentinel.report.advice import advice
from rl_sentinel.report.finding_block import also_broken, level, sentence, when
from rl_sentinel.report.formatting import numbers
from rl_sentinel.report.results import Results
from rl_sentinel.report.scenario import has_batch, scenario_columns
from rl_sentinel.report.text import summary

#: Headings of the columns of the coverage table, and the outcome that each column counts.
_OUTCOMES = (("hold", "holds"), ("broken", "broken"), ("not applicable", "not-applicable"), ("errored", "errored"))


class Cell(NamedTuple):
    """One number of a tensor: its text, its color, and whether it was changed or is wrong."""

    text: str
    color: str
    marked: bool


class Grid(NamedTuple):
    """A tensor as rows of cells."""

    name: str
    rows: list[list[Cell]]


class Block(NamedTuple):
    """One cause, as the template shows it; ``places`` are the other places that show it."""

    finding: Finding
    level: str
    sentence: str
    also: str
    when: str
    fix: str
    grids: list[Grid]
    places: list[str]


class Coverage(NamedTuple):
    """Number of laws per outcome at one boundary under one setting."""

    boundary: str
    setting: str
    counts: Mapping[str, int]


def as_html(results: Sequence[Results]) -> str:
    """The page of all targets."""
    source = files("rl_sentinel.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    template = Environment(
        undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).from_string(source)
    blocks = [(target, [_block(f) for f in group_by_cause(target.findings)], coverage(target)) for target in results]
    return template.render(version=__version__, shown=blocks, outcomes=_OUTCOMES, summary=summary)


def coverage(results: Results) -> list[Coverage]:
    """How many laws hold, break, do not apply and err at each boundary and setting."""
    table: dict[tuple[str, str], dict[str, int]] = {}
    for verdict in results.audit.verdicts:
        counts = table.setdefault((verdict.boundary, verdict.setting), {})
        counts[verdict.outcome] = counts.get(verdict.outcome, 0) + 1
    return [Coverage(boundary, setting, counts) for (boundary, setting), counts in sorted(table.items())]


def grid(name: str, values: Any, marked: Sequence[Sequence[int]] = (), text: str = "") -> Grid:  # noqa: ANN401 - JSON
    """A tensor as cells, one line for each row of the batch; numbers of further axes are written into one cell.

    Example:
        >>> from rl_sentinel.report.html import grid
        >>> grid("reward", [0.0, 2.0], marked=[[1]]).rows
        [[Cell(text='0', color='', marked=False)], [Cell(text='2', color='plus', marked=True)]]
    """
    lines = values if isinstance(values, list) else [values]
    rows = [line if isinstance(line, list) else [line] for line in lines]
    places = {(*place, 0, 0)[:2] for place in map(tuple, marked)}
    cells = [[Cell(numbers(v), _color(v), (i, j) in places) for j, v in enumerate(row)] for i, row in enumerate(rows)]
    if text and len(places) == 1:
        ((i, j),) = places
        cells[i][j] = cells[i][j]._replace(text=text)
    return Grid(name, cells)


def _color(value: Any) -> str:  # noqa: ANN401 - JSON
    if not isinstance(value, int | float) or isinstance(value, str):
        return ""
    if value != value:  # noqa: PLR0124 - NaN
        return "nan"
    return "plus" if value > 0 else "minus" if value < 0 else ""


def _block(findings: Sequence[Finding]) -> Block:
    first = findings[0]
    evidence = first.evidence
    places = [*(f"{f.boundary} [{f.setting}]" for f in findings[1:]), *(place for f in findings for place in f.also)]
    grids = _grids(evidence) if has_batch(evidence) else []
    return Block(
        first, level(first), sentence(evidence), also_broken(evidence), when(evidence), advice(evidence), grids, places
    )


def _grids(evidence: Mapping[str, Any]) -> list[Grid]:
    expectation = evidence["expectation"]
    change = expectation["change"] or {}
    grids = []
    for name, values in scenario_columns(evidence):
        if name == change.get("column"):
            before, after = (numbers(float(change[key])) for key in ("before", "after"))
            grids.append(grid(name, values, [change["cell"]], f"{before} → {after}"))
        else:
            grids.append(grid(name, values))
    broken = expectation["broken"]["cells"]
    for result in expectation["results"]:
        same_output = result["output"] == expectation["output"]
        if result["expected"] is not None:
            grids.append(grid(f"{result['output']}, expected", result["expected"]))
        grids.append(grid(f"{result['output']}, observed", result["observed"], broken if same_output else ()))
    return grids
