"""``rl-sentinel train``: train by a recipe, or repeat the failed step of a run."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from rl_sentinel.audit.source.cache import cached_folder
from rl_sentinel.cli.certificate import Certifier, read_summary
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.paths import expanded
from rl_sentinel.report.curves import picture, table
from rl_sentinel.report.formatting import counted
from rl_sentinel.report.tensorboard import TensorBoard
from rl_sentinel.report.training import Live
from rl_sentinel.report.weights_and_biases import WeightsAndBiases
from rl_sentinel.train.config.recipe import Recipe, load_recipe
from rl_sentinel.train.run import loop
from rl_sentinel.train.run.distributed import Ranks
from rl_sentinel.train.run.failed_step import replay_failed_step
from rl_sentinel.train.run.journal import read_evaluations, read_metrics
from rl_sentinel.train.run.memory_plan import memory_size, plan_memory
from rl_sentinel.train.run.run_context import Callbacks


def train(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A TOML file, or the dump of a failed step.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="Override keys of the recipe, as in out=DIR seed=1 update.rate=1e-3."
        ),
    ] = None,
    *,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the memory that a process needs, and do not train.")
    ] = False,
    uncertified: Annotated[
        bool, typer.Option("--uncertified", help="Train without an audit of the recipe first.")
    ] = False,
) -> None:
    """Train a language model with RECIPE in the folder out=DIR; resume from the newest checkpoint there.

    Before the first step the path and the loss are audited as RECIPE composes them; exit 1 on a fault.
    With the dump of a failed step (RUN/stopped-*.pt), repeat that step: exit 1 if it fails again, else 0.
    """
    if recipe.suffix == ".pt":
        _replay(recipe, overrides or ())
    composed = load_recipe(recipe, overrides or ())
    if plan:
        _plan(composed)
        return
    folder, ranks = expanded(composed.out, "out"), Ranks.join()
    with (
        closing(ranks),
        closing(TensorBoard(folder)) as board,
        closing(WeightsAndBiases(folder, composed.model_dump(mode="json"))) as wandb,
        Live(Console(stderr=True, highlight=False), composed.steps, shown=sys.stderr.isatty()) as live,
    ):

        def step(metrics: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
            live.step(metrics, timing)
            board.step(metrics, timing)
            wandb.step(metrics, timing)

        def evaluation(step: int, metrics: Mapping[str, float]) -> None:
            live.evaluation(step, metrics)
            wandb.evaluation(step, metrics)

        callbacks, certifier = Callbacks(), Certifier(composed, live.say)
        if ranks.is_first:
            opening = certifier.withdraw if uncertified else certifier.certify
            callbacks = Callbacks(live.warming, step, live.say, live.completions, evaluation, opening)
        loop.train(composed, cache=cached_folder, callbacks=callbacks, ranks=ranks)
        if ranks.is_first:
            certifier.complete(folder, composed.steps)
    if ranks.is_first:
        _show(folder)
    ranks.end_process()


def _plan(recipe: Recipe) -> None:
    """Print the memory that each of torchrun's processes would need, and check that it fits."""
    processes = int(os.environ.get("WORLD_SIZE", "1")) if os.environ.get("WORLD_SIZE", "1").isdecimal() else 1
    needed = plan_memory(recipe, processes=max(1, processes))
    plan = Table(box=None)
    plan.add_column(f"each of {counted(needed.processes, 'process', 'processes')}")
    plan.add_column("memory", justify="right")
    for name, size in (
        *needed.needs.items(),
        ("at most at one time", needed.total),
        (f"{needed.device} has", needed.available),
    ):
        plan.add_row(name, memory_size(size))
    Console(highlight=False).print(plan)
    needed.require_room()


def _show(folder: Path) -> None:
    """Print the final table, and draw the curves if matplotlib is installed."""
    runs, place = [(folder.name, read_metrics(folder / "metrics.jsonl"))], folder / "curves.png"
    evaluations = read_evaluations([(folder.name, folder)])
    Console(highlight=False).print(table(runs, evaluations))
    curves = ""
    with suppress(ImportError):
        picture(runs, place, evaluations)
        curves = f", curves in {place.name}"
    print(read_summary(folder) or "no certificate: this recipe was not audited (--uncertified)")  # noqa: T201 - output of a command
    print(f"{folder / 'metrics.jsonl'}: a line per step; times in timing.jsonl{curves}")  # noqa: T201 - output of a command


def _replay(dump: Path, overrides: Sequence[str]) -> NoReturn:
    if overrides:
        raise SentinelError(
            f"override {overrides[0]!r} is given with a dump, expected no override: {dump} contains its recipe"
        )
    before, now = replay_failed_step(dump)
    print(f"then: {before}\nnow:  {now or 'finite'}")  # noqa: T201 - output of a command
    raise typer.Exit(1 if now else 0)
