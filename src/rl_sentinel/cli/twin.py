"""``rl-sentinel twin``: train a recipe twice, with and without outliers in values that must have no effect."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rl_sentinel.audit.source.cache import cached_folder
from rl_sentinel.report.training import Live
from rl_sentinel.train.config.recipe import load_recipe
from rl_sentinel.train.run.run_context import Callbacks
from rl_sentinel.train.run.twin_runs import PERTURBATIONS, run_twins


def twin(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A TOML file, as for train.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As for train.")] = None,
    *,
    perturb: Annotated[
        str, typer.Option(metavar="WHAT", help=f"Values that get outliers: {', '.join(PERTURBATIONS)}.")
    ] = "rejected-rewards",
    fault: Annotated[
        str,
        typer.Option(
            metavar="PLACE:NAME",
            help="Replace the signal path, as by examples/faults.py:rejected_in_baseline, which has a fault.",
        ),
    ] = "",
) -> None:
    """Train RECIPE twice, with and without outliers in values that must have no effect; exit 0 if equal, else 1."""
    fault_override = [f"path={fault}"] if fault else []
    composed = load_recipe(recipe, [*(overrides or ()), *fault_override])
    console = Console(highlight=False, soft_wrap=True)
    with Live(Console(stderr=True, highlight=False), composed.steps, shown=sys.stderr.isatty()) as live:
        callbacks = Callbacks(live.warming, live.step, live.say)
        result = run_twins(composed, perturb=perturb, cache=cached_folder, callbacks=callbacks)
    console.print(result.summary(), markup=False)
    raise typer.Exit(0 if result.differs_at is None else 1)
