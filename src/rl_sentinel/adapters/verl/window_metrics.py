"""Boundary of verl's fully asynchronous trainer: the step at which it logs the metrics between two weight updates."""

import asyncio
import inspect
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import redirect_stdout
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.forms import Number, PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Derived, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.agent_script import untimed
from rl_sentinel.adapters.verl.training_run_fakes import Silence
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

MODULE = "verl.experimental.fully_async_policy"
TRAINER = f"{MODULE}.fully_async_trainer.FullyAsyncTrainer"
PATH = f"{TRAINER}.fit"
AGGREGATOR = f"{MODULE}.detach_utils.MetricsAggregator"

#: Setting -> the number of steps between two weight updates.
SETTINGS: Mapping[str, Settings] = {"one step an update": {"every": 1}, "two steps an update": {"every": 2}}

#: A metric of each step; its value is the number of the weight update after the step.
_NUMBER = "actor/number"

#: Methods of a step that return the batch.
_PASSES = (
    "_fit_compute_reward",
    "_fit_compute_log_prob",
    "_fit_compute_ref_log_prob",
    "_fit_compute_critic",
    "_fit_compute_advantage",
    "_fit_update_critic",
    "_fit_update_actor",
)
#: Methods of a step that only write files, profiles or memory statistics.
_SILENT = ("_fit_dump_data", "_fit_save_checkpoint", "_fit_start_profile", "_fit_stop_profile", "_fit_torch_memory")

_DOCS = claims(
    "fully_async_trainer.py, _fit_log_aggregated_training_metrics, docstring: log aggregated training metrics for the "
    "sync cycle just finished; detach_utils.py, MetricsAggregator: combine metrics from multiple training steps"
)
_PRODUCED = (
    "fully_async_trainer.py, fit: steps until the queue ends; docs/advance/fully_async.md, "
    "async_training.trigger_parameter_sync_step: steps between two weight updates"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of a run with one or several steps between weight updates, in releases that take the run in steps."""
    needed = (f"{TRAINER}.fit_step", f"{TRAINER}._fit_postprocess_step", AGGREGATOR)
    if all(map(target.has, needed)) and not target.fails(TRAINER):
        yield from try_bind(target, PATH, "batch", lambda: [_boundary()])


class Log:
    """A fake log that keeps the number of each weight update."""

    def __init__(self) -> None:
        """Start empty."""
        self.numbers: dict[int, float] = {}

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Keep the number that is logged at an update."""
        if _NUMBER in data:
            self.numbers[step] = float(data[_NUMBER])


class Done:
    """The result of a call of an actor: an empty dict."""

    def future(self) -> Future[dict[str, float]]:
        """The result, at once."""
        future = Future[dict[str, float]]()
        future.set_result({})
        return future


class Rollouter:
    """A fake actor of the rollout; all methods return :class:`Done`."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a method of an actor
        """A method of any name."""
        if name.startswith("__"):
            raise AttributeError(name)
        return SimpleNamespace(remote=_done)


def _done(*_passed: object, **_options: object) -> Done:
    return Done()


def _got(results: Any) -> Any:  # noqa: ANN401 - of one call, or of several
    """The result of a call; of several calls, the numbers of samples that they count."""
    return [0 for _ in results] if isinstance(results, list) else {}


def logged_numbers(owner: Any, aggregator: Any, steps: int, every: int) -> dict[str, Any]:  # noqa: ANN401 - classes
    """Train ``steps`` steps with a weight update after ``every`` steps.

    Returns, per step, the number that is logged at its update (0 without an update, or if none is logged), and how many
    updates have the number of another update, or none.
    """
    log, code = Log(), inspect.unwrap(owner.fit_step).__globals__
    trainer = bare_instance(
        owner,
        config=SimpleNamespace(global_profiler=SimpleNamespace(steps=None), trainer=SimpleNamespace(test_freq=-1)),
        logger=log,
        metrics_aggregator=aggregator(total_gpus=1),
        rollouter=Rollouter(),
        checkpoint_manager=SimpleNamespace(update_weights=_later),
        message_queue_client=SimpleNamespace(get_queue_size_sync=lambda: 0),
        progress_bar=Silence(),
        dynamic_schedule_ctx=SimpleNamespace(step_required_samples=1),
        trigger_parameter_sync_step=every,
        **dict.fromkeys(("local_trigger_step", "required_samples", "staleness_threshold"), 1),
        **dict.fromkeys(("current_param_version", "last_ckpt_version", "global_steps", "epoch"), 0),
        **dict.fromkeys(("dynamic_schedule_enabled", "only_hybrid"), False),
        dynamic_resource_controller=None,
        **dict.fromkeys(_PASSES, _unchanged),
        **dict.fromkeys(_SILENT, nothing),
        _fit_validate=_later,
    )
    _drive(trainer, code["TrainingStopException"], steps, every)
    with redirect_stdout(None), replaced_globals(code, ray=SimpleNamespace(get=_got), marked_timer=untimed):
        asyncio.run(trainer.fit())
    updates = steps // every
    numbers = [log.numbers.get(1 + step // every, 0.0) if step // every < updates else 0.0 for step in range(steps)]
    wrong = sum(log.numbers.get(update) != update for update in range(1, updates + 1))
    return {"numbers": numbers, "elsewhere": float(wrong)}


def _drive(trainer: Any, stop: type[Exception], steps: int, every: int) -> None:  # noqa: ANN401 - of the target
    """Give the trainer a batch per step, and the metric of each step; the queue ends after ``steps`` steps."""
    batches = iter(range(steps))
    numbers = iter(1 + step // every for step in range(steps))

    async def generate(_batch: object = None) -> int:
        batch = next(batches, None)
        if batch is None:
            raise stop
        return batch

    def collect(_batch: object) -> None:
        trainer.metrics[_NUMBER] = next(numbers)

    trainer._fit_generate, trainer._fit_collect_metrics = generate, collect  # noqa: SLF001 - methods of a step


def _unchanged(batch: Any) -> Any:  # noqa: ANN401 - any batch
    return batch


async def _later(*_passed: object, **_options: object) -> dict[str, float]:
    """Do nothing, as a coroutine function."""
    return {}


def _two_steps(inputs: Inputs) -> str:
    return "" if inputs.batch.rows > 1 else "the run has only one step, and weights are updated after two"


def _boundary() -> Boundary:
    run = Use("run")
    return one_call(
        path=PATH,
        stage="batch",
        call=logged_numbers,
        name="run",
        arguments={
            **functions(owner=TRAINER, aggregator=AGGREGATOR),
            "steps": Derived(lambda inputs: inputs.batch.rows),
            "every": Knob("every"),
        },
        produced_by={"steps": _PRODUCED},
        remembered=True,
        reads=frozenset({"group"}),
        outputs={
            "number at the update of each step": Output("B", "count", "", at=run["numbers"], form=PerRow("list")),
            "numbers at another update": Output("", "count", "logged_elsewhere", at=run["elsewhere"], form=Number()),
        },
        settings=SETTINGS,
        claims=_DOCS,
        reach="experimental.fully_async_policy; async_training.trigger_parameter_sync_step",
        requires=(_two_steps,),
    )
