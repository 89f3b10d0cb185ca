"""``rl-sentinel train``: train by a recipe, or repeat the failed step of a run."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from rl_sentinel.audit.source.cache import kept
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.paths import expanded
from rl_sentinel.report.curves import picture, table
from rl_sentinel.report.tensorboard import TensorBoard
from rl_sentinel.report.training import Live
from rl_sentinel.train.config.recipe import load_recipe
from rl_sentinel.train.run import loop
from rl_sentinel.train.run.distributed import Ranks
from rl_sentinel.train.run.failed_step import replay_failed_step
from rl_sentinel.train.run.journal import read_evaluations, read_metrics
from rl_sentinel.train.run.run_context import Callbacks


def train(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A TOML file, or the dump of a failed step.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As out=DIR, seed=1, update.rate=1e-3.")
    ] = None,
) -> None:
    """Train a language model with RECIPE in the folder out=DIR; resume from the newest checkpoint there.

    With the dump of a failed step (RUN/stopped-*.pt), repeat that step: exit 1 if it fails again, else 0.
    """
    if recipe.suffix == ".pt":
        _replay(recipe, overrides or ())
    wanted = load_recipe(recipe, overrides or ())
    folder, ranks = expanded(wanted.out, "out"), Ranks.join()
    with (
        closing(ranks),
        closing(TensorBoard(folder)) as board,
        Live(Console(stderr=True, highlight=False), wanted.steps, shown=sys.stderr.isatty()) as live,
    ):

        def step(metrics: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
            live.step(metrics, timing)
            board.step(metrics, timing)

        callbacks = Callbacks()
        if ranks.is_first:
            callbacks = Callbacks(live.warming, step, live.say, live.completions, live.evaluation)
        loop.train(wanted, cache=kept, callbacks=callbacks, ranks=ranks)
    if ranks.is_first:
        _show(folder)


def _show(folder: Path) -> None:
    """Print the final table, and draw the curves if matplotlib is installed."""
    runs, place = [(folder.name, read_metrics(folder / "metrics.jsonl"))], folder / "curves.png"
    evaluations = read_evaluations([(folder.name, folder)])
    Console(highlight=False).print(table(runs, evaluations))
    drawn = f", curves in {place.name}" if picture(runs, place, evaluations) else ""
    print(f"{folder / 'metrics.jsonl'}: a line per step; times in timing.jsonl{drawn}")  # noqa: T201 - output of a command


def _replay(place: Path, overrides: Sequence[str]) -> NoReturn:
    if overrides:
        raise SentinelError(
            f"override {overrides[0]!r} is given with a dump, expected no override: {place} has its own recipe"
        )
    before, now = replay_failed_step(place)
    print(f"then: {before}\nnow:  {now or 'finite'}")  # noqa: T201 - output of a command
    raise typer.Exit(1 if now else 0)
