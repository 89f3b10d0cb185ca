"""``rl-sentinel history``: the findings of each release of a framework."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rl_sentinel.audit.law_codes import codes
from rl_sentinel.audit.release_history import Release, audited_release
from rl_sentinel.audit.sandbox.request import LEADING_CASES
from rl_sentinel.audit.source.releases import releases as listed
from rl_sentinel.audit.source.releases import target_of
from rl_sentinel.audit.source.target_spec import TargetSpec, parse_target
from rl_sentinel.cli.options import BoundaryOption, BudgetOption, LevelOption, SeedOption
from rl_sentinel.cli.output_paths import put, writable
from rl_sentinel.cli.progress import fetch, run_audit
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.report import history as report


def history(  # noqa: PLR0913 - the options of the command
    target: Annotated[
        str, typer.Argument(metavar="FRAMEWORK", help="verl, or verl@FOLDER for the version tags of a git folder.")
    ],
    *,
    releases: Annotated[
        str, typer.Option(metavar="A,B,C", help="Only these releases, in this order; for a git folder, any revisions.")
    ] = "",
    law: Annotated[list[str] | None, typer.Option(help="Only this law; may be repeated.")] = None,
    boundary: BoundaryOption = None,
    level: LevelOption = "contested",
    seed: SeedOption = 0,
    budget: BudgetOption = None,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Number of processes that run at a time.")] = 2,
    json_path: Annotated[Path | None, typer.Option("--json", metavar="PATH", help="One JSON object.")] = None,
) -> None:
    """Audit the releases of FRAMEWORK and show their findings; exit 0, or 2 if no release could be audited."""
    spec = parse_target(target)
    place = writable(json_path, "--json") if json_path else None
    options = {
        "laws": codes(law),
        "boundaries": tuple(boundary or ()),
        "seed": seed,
        "budget": budget or LEADING_CASES,
        "jobs": jobs,
    }
    names = [name for name in (part.strip() for part in releases.split(",")) if name] or listed(spec)
    columns = [_release(spec, name, level, options) for name in names]
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    for line in report.as_text(target, columns, level):
        console.print(line, markup=False)
    if place:
        put(place, json.dumps(report.as_json(target, columns, level), indent=1))
    raise typer.Exit(2 if all(column.error for column in columns) else 0)


def _release(spec: TargetSpec, name: str, level: str, options: dict[str, Any]) -> Release:
    """Audit one release; an error becomes part of its column."""
    target = target_of(spec, name)
    try:
        release, job, _ = fetch(parse_target(target), sys.executable, options)
        return audited_release(name, target, run_audit(release, job, sys.executable), level)
    except SentinelError as error:
        return Release(name, target, " ".join(str(error).split()))
