"""Boundaries of verl's aggregators, which reduce the metrics of several steps."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from typing import Any

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.requirements import equal_parts, every_row_trains
from rl_sentinel.adapters.kit.reward_codecs import PerRowOutcome
from rl_sentinel.adapters.kit.value_codecs import Derived, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, critic_values, trainer_data
from rl_sentinel.adapters.verl.metrics import LOGGED, PLACES
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.codec import Inputs

#: Aggregator -> where its trainer is configured, and the line that adds the metrics of a step.
AGGREGATORS: Mapping[str, tuple[str, str]] = {
    "verl.trainer.ppo.v1.utils.MetricsAggregator": (
        "trainer.v1.trainer_mode=separate_async, several steps between two updates of the weights",
        "v1/trainer_base.py, step: add_step_metrics with the number of rows of the step",
    ),
    "verl.experimental.fully_async_policy.detach_utils.MetricsAggregator": (
        "experimental.fully_async_policy, async_training.trigger_parameter_sync_step above 1",
        "fully_async_trainer.py: add_step_metrics after each step, of required_samples prompts",
    ),
}

#: Metrics of rows. Metrics of tokens would need weights: the number of tokens of each step.
_OF_ROWS = ("critic/score/", "critic/rewards/", "response_length/")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the aggregators of this release."""
    compute = next((p for p in PLACES if target.has(p)), "")
    for path, (reach, produced) in AGGREGATORS.items():
        if compute and target.has(path):
            yield from try_bind(target, path, "metric", partial(_aggregated, target, compute, path, reach, produced))


def aggregate(
    kind: Callable[..., Any],
    compute: Callable[..., dict[str, Any]],
    batch: Any,  # noqa: ANN401 - a DataProto
    sizes: list[int],
) -> dict[str, float]:
    """Add the metrics of several steps to an aggregator, and return one value for each metric.

    ``sizes`` has the number of rows of each step.
    """
    aggregator = kind(total_gpus=1) if "total_gpus" in inspect.signature(kind).parameters else kind()
    start = 0
    for size in sizes:
        part = batch.select_idxs(list(range(start, start + size)))
        aggregator.add_step_metrics(compute(part, use_critic=True), sample_count=size)
        start += size
    with redirect_stdout(None):
        metrics: dict[str, float] = aggregator.get_aggregated_metrics()
    return metrics


def _sizes(inputs: Inputs) -> list[int]:
    """Rows of each step, as equal as possible."""
    parts, rows = inputs.layout.micro_batches, inputs.batch.rows
    return [rows // parts + (number < rows % parts) for number in range(parts)]


def _aggregated(target: Target, compute: str, path: str, reach: str, produced: str) -> Iterator[Boundary]:
    source = inspect.getsource(target.find(compute))
    names = [name for name in LOGGED if name.startswith(_OF_ROWS) and f'"{name}"' in source]
    tensors = {
        "token_level_scores": PerRowOutcome(),
        "values": critic_values(target),
        "advantages": Column("advantage"),
        "returns": Column("returns"),
    }
    weighted = "weight" in inspect.getsource(target.find(path).add_step_metrics)

    def output(name: str) -> Output:
        return replace(LOGGED[name], at=Use("metrics")[name], over="all")

    yield one_call(
        path=f"{compute} -> {path}",
        stage="metric",
        call=aggregate,
        name="metrics",
        arguments={
            **functions(kind=path, compute=compute),
            "batch": trainer_data(target, compute, **tensors),
            "sizes": Derived(_sizes, frozenset({"micro_batches"})),
        },
        produced_by={"batch": MASK_PRODUCER, "sizes": produced},
        unused=frozenset({"token", "group", "advantage", "value", "returns"}),
        outputs={name: output(name) for name in names},
        settings={"steps": {}},
        reach=reach,
        requires=(every_row_trains, *(() if weighted else (equal_parts,))),
    )
