"""``rl-sentinel train``: run a recipe."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from rl_sentinel.audit.cache import kept
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.paths import expanded
from rl_sentinel.report.curves import picture, table
from rl_sentinel.report.tensorboard import TensorBoard
from rl_sentinel.report.training import Live
from rl_sentinel.train.config.recipe import read
from rl_sentinel.train.run import loop
from rl_sentinel.train.run.distributed import Ranks
from rl_sentinel.train.run.failed_step import replayed
from rl_sentinel.train.run.journal import lines


def train(
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE", help="A TOML file, as recipes/sort.toml; or what a stopped run kept.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As out=DIR, seed=1, update.rate=1e-3.")
    ] = None,
) -> None:
    """Train a language model by RECIPE, from its newest checkpoint; what comes of it lies in its folder, out=DIR.

    Given the evidence of a run that stopped (RUN/stopped-*.pt), do that step again: exit 1 if it happens, 0 if not.
    """
    if recipe.suffix == ".pt":
        _replay(recipe, overrides or ())
    wanted = read(recipe, overrides or ())
    folder, ranks = expanded(wanted.out, "out"), Ranks.joined()
    with (
        closing(ranks),
        closing(TensorBoard(folder)) as board,
        Live(Console(stderr=True, highlight=False), wanted.steps, shown=sys.stderr.isatty()) as live,
    ):

        def step(seen: Mapping[str, Any], spent: Mapping[str, Any]) -> None:
            live.step(seen, spent)
            board.step(seen, spent)

        watch = loop.Watch(live.warming, step, live.say) if ranks.first else loop.Watch()
        loop.train(wanted, kept=kept, watch=watch, ranks=ranks)
    if ranks.first:
        _show(folder)


def _show(folder: Path) -> None:
    """The table at the end, and the picture where it can be drawn."""
    run, place = (folder.name, lines(folder / "metrics.jsonl")), folder / "curves.png"
    Console(highlight=False).print(table([run]))
    drawn = f", curves in {place.name}" if picture([run], place) else ""
    print(f"{folder / 'metrics.jsonl'}: a line per step; times in timing.jsonl{drawn}")  # noqa: T201 - the command line's own


def _replay(place: Path, overrides: Sequence[str]) -> NoReturn:
    if overrides:
        raise SentinelError(
            f"override {overrides[0]!r} changes nothing of evidence, expected none: {place} has its recipe within"
        )
    before, now = replayed(place)
    print(f"then: {before}\nnow:  {now or 'finite'}")  # noqa: T201 - the command line's own output
    raise typer.Exit(1 if now else 0)
