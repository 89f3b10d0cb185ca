"""``explain``, ``laws``, ``boundaries`` and ``influence``: looking without judging."""

import importlib
import inspect
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import rl_sentinel.laws
from rl_sentinel.audit.driver import events, request
from rl_sentinel.audit.target import named
from rl_sentinel.audit.worker import main as worker
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.modules import defined

Python = Annotated[str, typer.Option(help="Interpreter of the environment to look in.")]
TargetArgument = Annotated[str, typer.Argument(metavar="TARGET")]


def explain(code: Annotated[str, typer.Argument(metavar="CODE")]) -> None:
    """Print a law's page."""
    for module, law in defined(rl_sentinel.laws, "LAW").items():
        if code.upper() in (law.code, law.name.upper()):
            page = inspect.getdoc(importlib.import_module(f"rl_sentinel.laws.{module}")) or ""
            Console(highlight=False).print(page, markup=False)
            return
    raise SentinelError(f"law is {code!r}, expected one of {', '.join(worker.laws())}")


def laws() -> None:
    """List the laws."""
    table = Table(box=None, header_style="bold")
    for column in ("code", "name", "stages"):
        table.add_column(column)
    for law in worker.laws().values():
        table.add_row(law.code, law.name, ", ".join(sorted(law.stages)))
    Console().print(table)


def boundaries(target: TargetArgument, *, python: Python = sys.executable, stage: str = "") -> None:
    """List what an audit of TARGET would call, with its claims and their citations."""
    console = Console(highlight=False, soft_wrap=True)
    job, _ = request(named(target), "boundaries", python=python, stage=stage)
    for event in events(job, python):
        if event["event"] == "verdict":
            console.print(f"[red]unbound[/] {escape(event['boundary'])}: {escape(event['reason'])}")
            continue
        console.print(f"[bold]{escape(event['path'])}[/] ({event['stage']}) {escape(str(event['settings']))}")
        for key, (value, cite) in event["claims"].items():
            console.print(f"    {key}: {value} ({cite})", markup=False)


def influence(target: TargetArgument, *, boundary: str = "", python: Python = sys.executable, stage: str = "") -> None:
    """Show which output cells move when one input cell moves: no law, no judgement."""
    console = Console(highlight=False, soft_wrap=True)
    job, _ = request(named(target), "influence", python=python, boundary=boundary, stage=stage)
    for event in events(job, python):
        if event["event"] == "influence":
            for found in event["maps"]:
                _picture(console, event["path"], found)


def _picture(console: Console, path: str, found: dict[str, object]) -> None:
    console.print(f"\n[bold]{escape(path)}[/] {escape('[' + str(found['setting']) + ']')}")
    mask, moves = found["mask"], found["moves"]
    if not isinstance(mask, list) or not isinstance(moves, dict):
        raise TypeError("an influence map holds a mask and moves")
    console.print(f"mask {mask}, group {found['group']}", markup=False)
    for cell, reached in moves.items():
        for output, cells in reached.items():
            drawn = "  ".join(_row(row, len(mask[row]), cells) for row in range(len(mask)))
            console.print(f"  {cell:<22} -> {output:<12} {drawn}", markup=False)


def _row(row: int, width: int, cells: list[list[int]]) -> str:
    if all(len(c) == 2 for c in cells):
        return "".join("#" if [row, t] in cells else "." for t in range(width))
    return "#" if [row] in cells else "."
