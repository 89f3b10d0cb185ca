"""``explain``, ``laws``, ``boundaries`` and ``influence``: commands that show information without an audit."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import rl_sentinel.laws
from rl_sentinel.audit.engine import worker
from rl_sentinel.audit.law_codes import code
from rl_sentinel.audit.sandbox.worker_process import events, request
from rl_sentinel.audit.source.target_spec import parse_target
from rl_sentinel.cli.missing import list_missing
from rl_sentinel.cli.options import BoundaryOption, ClaimOption, FunctionOptions, StageOption, function_request
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.modules import defined

Python = Annotated[str, typer.Option(help="Python interpreter of the environment in which TARGET is imported.")]
TargetArgument = Annotated[str, typer.Argument(metavar="TARGET")]

#: Width of output that does not go to a terminal: large, so that lines are not wrapped.
_UNBROKEN = 240

#: Hint for a pattern that matches no boundary.
_LIST = "`rl-sentinel boundaries {}` lists them"


def explain(law: Annotated[str, typer.Argument(metavar="CODE")]) -> None:
    """Print a law's page."""
    wanted_code = code(law)
    module = next(m for m, defined_law in defined(rl_sentinel.laws, "LAW").items() if defined_law.code == wanted_code)
    page = inspect.getdoc(importlib.import_module(f"rl_sentinel.laws.{module}")) or ""
    Console(highlight=False, soft_wrap=True, emoji=False).print(page, markup=False)


def laws() -> None:
    """List the laws."""
    table = Table(box=None, header_style="bold")
    for column in ("code", "name", "stages"):
        table.add_column(column)
    for law in worker.laws().values():
        table.add_row(law.code, law.name, ", ".join(sorted(law.stages)))
    Console(width=None if sys.stdout.isatty() else _UNBROKEN).print(table)


def boundaries(  # noqa: PLR0913 - the options of the command
    target: TargetArgument,
    *,
    boundary: BoundaryOption = None,
    python: Python = sys.executable,
    stage: StageOption = "",
    claim: ClaimOption = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="List the functions of the signal path that no boundary enters.")
    ] = False,
) -> None:
    """List the boundaries that an audit of TARGET would call, with their claims and citations."""
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    spec = parse_target(target)
    options = function_request([spec], FunctionOptions.parsed(stage=stage, claim=claim))
    if missing:
        list_missing(console, spec, python)
        return
    job, _ = request(spec, "boundaries", python=python, boundaries=tuple(boundary or ()), **options)
    hint = _LIST.format(target) if boundary else "the adapter has no boundaries for this release"
    none = f"{target} has no boundary{_that_matches(boundary)}"
    messages = (f"{none}: {hint}", f"{none} that can be called")
    with closing(events(job, python)) as stream:
        _show(console, stream, "boundary", lambda event: _boundary(console, event), messages)


def _show(
    console: Console,
    stream: Iterable[dict[str, Any]],
    kind: str,
    show: Callable[[dict[str, Any]], None],
    messages: tuple[str, str],
) -> None:
    """Show each event of a kind, and the reason for each boundary without such an event.

    Raises:
        SentinelError: if nothing can be shown; its message is the first of ``messages`` if no boundary matches, and
            otherwise the second one with the reason.
    """
    shown, missing = 0, list[dict[str, Any]]()
    for event in stream:
        if event["event"] == kind:
            shown += 1
            show(event)
        else:
            missing.append(event)
    if shown or len(missing) > 1:
        for event in missing:
            console.print(_missing(event))
    if not shown:
        one = " ".join(missing[0]["reason"].split()) if len(missing) == 1 else "see the reasons above"
        no_match, unusable = messages
        raise SentinelError(f"{unusable}: {one}" if missing else no_match)


def _that_matches(patterns: Sequence[str] | None) -> str:
    return f" that matches {' or '.join(map(repr, patterns))}" if patterns else ""


def _boundary(console: Console, event: dict[str, Any]) -> None:
    console.print(f"[bold]{escape(event['path'])}[/] ({event['stage']}) {escape(str(event['settings']))}")
    for key, (value, cite) in event["claims"].items():
        console.print(f"    {key}: {value} ({cite})", markup=False)


def _missing(event: dict[str, Any]) -> str:
    setting = "" if event["setting"] in ("*", "default") else f" [{event['setting']}]"
    label = "unbound" if event["law"] == "*" else "errored"
    return f"[red]{label}[/] {escape(event['boundary'] + setting)}: {escape(' '.join(event['reason'].split()))}"


def influence(
    target: TargetArgument, *, boundary: BoundaryOption = None, python: Python = sys.executable, stage: StageOption = ""
) -> None:
    """Show which output cells change when one input cell changes; no law is checked."""
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    spec = parse_target(target)
    options = function_request([spec], FunctionOptions(stage=stage))
    job, _ = request(spec, "influence", python=python, boundaries=tuple(boundary or ()), **options)
    none = f"{target} has no boundary{_that_matches(boundary)}"
    messages = (f"{none} with an influence map: {_LIST.format(target)}", f"{none} whose influence map can be computed")
    with closing(events(job, python)) as stream:
        _show(console, stream, "influence", lambda event: _picture(console, event["path"], event["map"]), messages)


def _picture(console: Console, path: str, influence_map: dict[str, object]) -> None:
    console.print(f"\n[bold]{escape(path)}[/] {escape('[' + str(influence_map['setting']) + ']')}")
    mask, moves = influence_map["mask"], influence_map["moves"]
    if not isinstance(mask, list) or not isinstance(moves, dict):
        raise TypeError("an influence map needs a mask and the cells that moved")
    groups = influence_map["group"]
    if not isinstance(groups, list):
        raise TypeError("an influence map needs the group of each row")
    head = "  ".join(f"{group:<{len(row)}}" for group, row in zip(groups, mask, strict=True))
    console.print(f"  {'group of each row':<39} {head}".rstrip(), markup=False)
    picture = "  ".join("".join("#" if cell else "." for cell in row) for row in mask)
    console.print(f"  {'trained tokens':<39} {picture}", markup=False)
    for cell, reached in moves.items():
        for output, cells in reached.items():
            picture = "  ".join(_row(row, len(mask[row]), cells) for row in range(len(mask)))
            console.print(f"  {cell:<22} -> {output:<12} {picture}", markup=False)


def _row(row: int, width: int, cells: list[list[int]]) -> str:
    if all(len(c) == 2 for c in cells):
        return "".join("#" if [row, t] in cells else "." for t in range(width))
    return "#" if [row] in cells else "."
