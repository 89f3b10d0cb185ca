"""Boundaries of verl's validation metrics over several samples per prompt: mean, std, best, worst, majority."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import cycle, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Labels, PromptIds, partition
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.requirements import group_sizes, groups_are_equal, prompts_are_contiguous
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Derived, Earlier
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

_MODULE = "verl.trainer.ppo.metric_utils"
PROCESS, BOOTSTRAP = f"{_MODULE}.process_validation_metrics", f"{_MODULE}.bootstrap_metric"

#: Methods of the trainers, which give the metrics their logged names.
UPDATES = (
    "verl.trainer.ppo.ray_trainer.RayPPOTrainer._val_metrics_update",
    "verl.trainer.ppo.v1.trainer_base.PPOTrainer._val_metrics_update",
)

#: Maximum samples per prompt: all draws are enumerated.
MOST = 4

_CLAIMS = claims(
    "metric_utils.py, process_validation_metrics, docstring: grouped by data source and prompt, bootstrap sampling, "
    "averaged across prompts",
    grouping="id",
)
_PRODUCED = (
    "ray_trainer.py, _validate: each prompt is repeated val_kwargs.n times; rewards summed over tokens are a list "
    "beside those of the reward function; prompts are their uids, or their texts in releases before uids"
)

#: Name of a statistic -> its quantity.
ALWAYS: Mapping[str, Output] = {
    "mean": Output("", "reward", "sample_mean", over="all"),
    "std": Output("", "reward", "sample_deviation", over="all"),
    "best": Output("", "reward", "best_sample", over="all"),
    "worst": Output("", "reward", "worst_sample", over="all"),
    "best of 2": Output("", "reward", "best_of_two", over="all"),
    "worst of 2": Output("", "reward", "worst_of_two", over="all"),
}
_VOTED: Mapping[str, Output] = {
    "majority": Output("", "reward", "voted_sample", over="all"),
    "majority of 2": Output("", "reward", "voted_of_two", over="all"),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the metrics from rewards, without and with answers for majority voting, and of the bootstrap."""
    for path in (PROCESS, *UPDATES):
        if target.has(path):
            yield from try_bind(target, path, "metric", partial(_validated, target, path))
    if target.has(BOOTSTRAP):
        yield from try_bind(target, BOOTSTRAP, "metric", lambda: [_bootstrap(size) for size in ("all", "two")])


def few_samples(inputs: Inputs) -> str:
    """The reason to skip a batch whose smallest prompt has below 2 or above :data:`MOST` samples; else empty."""
    return "" if 2 <= min(group_sizes(inputs)) <= MOST else f"a prompt has fewer than 2 samples or more than {MOST}"


def lone_samples(inputs: Inputs) -> str:
    """The reason to skip a batch where a prompt has several samples; empty otherwise."""
    return "" if max(group_sizes(inputs)) == 1 else "a prompt has several samples, but val_kwargs.n is 1"


def one_sample_per_prompt(batch: Batch) -> Batch:
    """The batch, with a prompt of its own for each row."""
    return with_columns(batch, group=torch.arange(batch.rows))


def one_prompt(inputs: Inputs) -> str:
    """The reason to skip a batch whose samples are not of a single prompt; empty otherwise."""
    return (
        ""
        if len(group_sizes(inputs)) == 1
        else "the samples are of several prompts, but the function takes the samples of one prompt"
    )


def enumerate_draws(data: list[Any], subset_size: int, reduce_fns: list[Callable[..., Any]], **_about: object) -> Any:  # noqa: ANN401 - a list of pairs
    """Mean and standard deviation over all draws with replacement, which the bootstrap estimates from 1,000 draws."""
    samples = np.array(data, dtype=object)
    draws = [samples[list(rows)] for rows in product(range(len(samples)), repeat=subset_size)]
    results = [[float(reduce(draw)) for draw in draws] for reduce in reduce_fns]
    return [(float(np.mean(one)), float(np.std(one))) for one in results]


@cache
def _draws_in_turn(count: int, size: int) -> Iterator[tuple[int, ...]]:
    return cycle(product(range(count), repeat=size))


def enumerate_rows(count: int, size: int | tuple[int, int], replace: bool = True, **_about: object) -> Any:  # noqa: ANN401, FBT001, FBT002 - numpy's own parameters
    """``size[0]`` draws of ``size[1]`` rows, each possible draw in turn; the next draw if ``size`` is a number."""
    del replace
    if isinstance(size, int):  # releases that draw one sample at a time, as many as there are draws
        return np.array(next(_draws_in_turn(count, size)))
    draws = np.array(list(product(range(count), repeat=size[1])))
    return draws[np.arange(size[0]) % len(draws)]


def bootstrap_extremes(estimate: Callable[..., Any], data: list[float], size: int) -> Any:  # noqa: ANN401 - a list of pairs
    """Mean and standard deviation of the best and the worst sample, over all possible draws."""
    return estimate(data, size, [np.max, np.min], n_bootstrap=len(data) ** size)


def statistics_by_name(metrics: Any, samples: int) -> dict[str, float]:  # noqa: ANN401 - metrics by source and variable, or by full name
    """The statistics of the rewards of one data source, by name; NaN if a statistic is not logged."""
    flat = (
        metrics["task"]["reward"] if "task" in metrics else {k.rpartition("/reward/")[2]: v for k, v in metrics.items()}
    )
    names = {
        "mean": f"mean@{samples}",
        "std": f"std@{samples}",
        "best": f"best@{samples}/mean",
        "worst": f"worst@{samples}/mean",
        "best of 2": "best@2/mean",
        "worst of 2": "worst@2/mean",
        "majority": f"maj@{samples}/mean",
        "majority of 2": "maj@2/mean",
    }
    return {name: float(flat.get(key, math.nan)) for name, key in names.items()}


def _extracted_answers(inputs: Inputs) -> list[str]:
    """Extracted answers; equal answers have equal rewards."""
    return [str(reward) for reward in inputs.batch.reward.tolist()]


def _texts(inputs: Inputs) -> list[str]:
    """Prompt texts; each pair of prompts has the same text and different images."""
    return [f"<image> question {number // 2}" for number in partition(inputs.batch.group).tolist()]


def shared_texts(target: Target) -> str:
    """The end of a reach: the prompts that share a text, in releases that tell prompts apart by text; else empty."""
    if not target.has(PROCESS):
        return ""
    parameters = list(inspect.signature(target.find(PROCESS)).parameters)
    return "; prompts with the same text, as with different images" if parameters[1] == "sample_inputs" else ""


def _validated(target: Target, path: str) -> list[Boundary]:
    prompts: Codec = PromptIds("strings-list")
    reach = f"every validation; rollout.val_kwargs.n above 1{shared_texts(target)}"
    if shared_texts(target):
        prompts = Computed(frozenset({"group"}), _texts, "prompts with different images share a text")
    rewards: dict[str, Codec] = {"reward": Labels("reward")}
    lone = _statistics(
        path, PromptIds("strings-list"), rewards, {"mean": ALWAYS["mean"]}, "one sample per prompt", "every validation"
    )
    answers = Computed(frozenset({"reward"}), _extracted_answers, "the rewards are read from their own list")
    return [
        replace(lone, requires=(prompts_are_contiguous, lone_samples), domain=one_sample_per_prompt),
        _statistics(path, prompts, rewards, ALWAYS, "rewards", reach),
        _statistics(path, prompts, rewards | {"pred": answers}, {**ALWAYS, **_VOTED}, "rewards and answers", reach),
    ]


def _statistics(  # noqa: PLR0913 - the parts in which the boundaries differ
    path: str, prompts: Codec, infos: Mapping[str, Codec], outputs: Mapping[str, Output], setting: str, reach: str
) -> Boundary:
    passed: list[Codec] = [Derived(lambda inputs: ["task"] * inputs.batch.rows), prompts, Table(infos)]
    if path != PROCESS:
        passed = [Derived(lambda _inputs: SimpleNamespace()), *passed, Derived(lambda _inputs: [])]
    step = Step(
        call=path,
        name="metrics",
        arguments={str(place): codec for place, codec in enumerate(passed)},
        fakes={BOOTSTRAP: enumerate_draws},
        produced_by={"1": _PRODUCED},
    )
    read = Step(
        call=statistics_by_name,
        name="logged",
        arguments={"metrics": Earlier(Use("metrics")), "samples": Derived(lambda inputs: group_sizes(inputs)[0])},
    )
    return Boundary(
        path=path,
        stage="metric",
        steps=(step, read),
        reads=frozenset({"reward", "group"}),
        outputs=_placed(outputs),
        settings={setting: {}},
        claims=_CLAIMS,
        reach=reach,
        requires=(prompts_are_contiguous, groups_are_equal, few_samples),
    )


def _placed(outputs: Mapping[str, Output]) -> dict[str, Output]:
    return {name: replace(output, at=Use("logged")[name]) for name, output in outputs.items()}


def _bootstrap(size: str) -> Boundary:
    def drawn(inputs: Inputs) -> int:
        return 2 if size == "two" else inputs.batch.rows

    best, worst = ("best_of_two", "worst_of_two") if size == "two" else ("best_sample", "worst_sample")
    result = Use("metrics")
    return one_call(
        path=BOOTSTRAP,
        stage="metric",
        call=bootstrap_extremes,
        name="metrics",
        arguments={"estimate": Constant(Function(BOOTSTRAP)), "data": Labels("reward"), "size": Derived(drawn)},
        fakes={f"{_MODULE}.np.random.choice": enumerate_rows},
        produced_by={"data": "metric_utils.py, process_validation_metrics: rewards of one prompt; all, or fewer"},
        reads=frozenset({"reward", "group"}),
        outputs={
            "best": Output("", "reward", best, over="all", at=result[0][0]),
            "worst": Output("", "reward", worst, over="all", at=result[1][0]),
        },
        settings={f"samples: {size}": {}},
        claims=claims(
            "metric_utils.py, bootstrap_metric, docstring: bootstrap sampling with replacement",
            output_definitions=dict.fromkeys(("best", "worst"), "drawn with replacement"),
        ),
        reach="every validation; rollout.val_kwargs.n above 1",
        requires=(one_prompt, few_samples),
    )
