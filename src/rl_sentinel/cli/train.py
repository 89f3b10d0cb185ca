"""``rl-sentinel train``: run a recipe."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rl_sentinel.audit.cache import kept
from rl_sentinel.report.training import Live, table
from rl_sentinel.train import loop
from rl_sentinel.train.journal import lines
from rl_sentinel.train.recipe import read


def train(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A TOML file, as recipes/sort.toml.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As out=DIR, seed=1, update.rate=1e-3.")
    ] = None,
) -> None:
    """Train a language model by RECIPE; what comes of it lies in its folder, out=DIR."""
    wanted = read(recipe, overrides or ())
    console = Console(highlight=False, soft_wrap=True)
    with Live(Console(stderr=True, highlight=False), wanted.steps, shown=sys.stderr.isatty()) as live:
        loop.train(wanted, kept=kept, watch=loop.Watch(warming=live.warming, step=live.step))
    folder = Path(wanted.out).expanduser()
    console.print(table([(str(folder), lines(folder / "metrics.jsonl"))]))
    console.print(f"{folder / 'metrics.jsonl'}: a line per step; times in timing.jsonl", markup=False)
