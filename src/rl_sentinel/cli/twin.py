"""``rl-sentinel twin``: a recipe trained twice, with and without outliers where nothing may look."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rl_sentinel.audit.cache import kept
from rl_sentinel.report.training import Live
from rl_sentinel.train.config.recipe import read
from rl_sentinel.train.run.loop import Watch
from rl_sentinel.train.run.twin_runs import PERTURBATIONS, twins


def twin(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A TOML file, as for train.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As for train.")] = None,
    *,
    perturb: Annotated[str, typer.Option(metavar="WHAT", help=f"{', '.join(PERTURBATIONS)}.")] = "rejected-rewards",
    fault: Annotated[
        str, typer.Option(metavar="PLACE:NAME", help="A path with a fault, as examples/faults.py:rejected_in_baseline.")
    ] = "",
) -> None:
    """Train RECIPE twice, with and without outliers where nothing may look; exit 0 equal to the last bit, 1 not."""
    more = [f"path={fault}"] if fault else []
    wanted = read(recipe, [*(overrides or ()), *more])
    console = Console(highlight=False, soft_wrap=True)
    with Live(Console(stderr=True, highlight=False), wanted.steps, shown=sys.stderr.isatty()) as live:
        found = twins(wanted, perturb=perturb, kept=kept, watch=Watch(live.warming, live.step, live.say))
    console.print(found.told(), markup=False)
    raise typer.Exit(0 if found.parted is None else 1)
