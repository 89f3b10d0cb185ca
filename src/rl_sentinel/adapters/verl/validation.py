"""verl's validation metrics over several samples per prompt: mean, deviation, best, worst and majority."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np

from rl_sentinel.adapters.kit.codecs import Labels, PromptIds, partition
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.requirements import group_sizes, groups_are_equal, prompts_are_contiguous
from rl_sentinel.adapters.kit.value_codecs import Computed, Constant, Derived, Earlier
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import described
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

_MODULE = "verl.trainer.ppo.metric_utils"
PROCESS, BOOTSTRAP = f"{_MODULE}.process_validation_metrics", f"{_MODULE}.bootstrap_metric"

#: The trainers' own methods, which name what is logged.
UPDATES = (
    "verl.trainer.ppo.ray_trainer.RayPPOTrainer._val_metrics_update",
    "verl.trainer.ppo.v1.trainer_base.PPOTrainer._val_metrics_update",
)

#: Most samples of a prompt: all draws of as many are enumerated.
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

#: Name of a statistic -> what it is, and its key after the number of samples.
_ALWAYS: Mapping[str, Output] = {
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
    """The metrics from rewards alone and with answers to vote on, under the trainers' names, and the bootstrap."""
    for path in (PROCESS, *UPDATES):
        if target.has(path):
            yield from described(target, path, "metric", partial(_validated, target, path))
    if target.has(BOOTSTRAP):
        yield from described(target, BOOTSTRAP, "metric", lambda: [_bootstrap(size) for size in ("all", "two")])


def few_samples(inputs: Inputs) -> str:
    """Every prompt has several samples, of which all draws can be enumerated."""
    return "" if 2 <= min(group_sizes(inputs)) <= MOST else f"a prompt has fewer than 2 samples or more than {MOST}"


def one_prompt(inputs: Inputs) -> str:
    """All samples are of one prompt."""
    return "" if len(group_sizes(inputs)) == 1 else "the function is called for the samples of one prompt"


def every_draw(data: list[Any], subset_size: int, reduce_fns: list[Callable[..., Any]], **_about: object) -> Any:  # noqa: ANN401 - a list of pairs
    """Mean and deviation over all draws with replacement, which the bootstrap estimates from 1,000 of them."""
    samples = np.array(data, dtype=object)
    drawn = [samples[list(rows)] for rows in product(range(len(samples)), repeat=subset_size)]
    found = [[float(reduce(one)) for one in drawn] for reduce in reduce_fns]
    return [(float(np.mean(one)), float(np.std(one))) for one in found]


def all_rows(count: int, size: tuple[int, int], replace: bool = True, **_about: object) -> Any:  # noqa: ANN401, FBT001, FBT002 - numpy's own parameters
    """All draws of so many rows, in place of random ones."""
    del replace
    drawn = np.array(list(product(range(count), repeat=size[1])))
    return drawn[np.arange(size[0]) % len(drawn)]


def extremes(estimate: Callable[..., Any], data: list[float], size: int) -> Any:  # noqa: ANN401 - a list of pairs
    """Mean and deviation of the best and of the worst, estimated from as many draws as there are."""
    return estimate(data, size, [np.max, np.min], n_bootstrap=len(data) ** size)


def logged(found: Any, samples: int) -> dict[str, float]:  # noqa: ANN401 - a table of metrics by source and variable, or by full name
    """The statistics of the rewards of the one data source, by name."""
    flat = found["task"]["reward"] if "task" in found else {k.rpartition("/reward/")[2]: v for k, v in found.items()}
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


def _answers(inputs: Inputs) -> list[str]:
    """Extracted answers: equal ones are scored alike."""
    return [str(reward) for reward in inputs.batch.reward.tolist()]


def _texts(inputs: Inputs) -> list[str]:
    """Texts of prompts, of which two share one each and differ in their image."""
    return [f"<image> question {number // 2}" for number in partition(inputs.batch.group).tolist()]


def _validated(target: Target, path: str) -> list[Boundary]:
    parameters = list(inspect.signature(target.find(PROCESS)).parameters)
    by_text = parameters[1] == "sample_inputs"
    prompts: Codec = PromptIds("strings-list")
    if by_text:
        prompts = Computed(frozenset({"group"}), _texts, "prompts with different images share a text")
    rewards: dict[str, Codec] = {"reward": Labels("reward")}
    answers = Computed(frozenset({"reward"}), _answers, "the rewards are in the list beside")
    return [
        _statistics(path, prompts, rewards, _ALWAYS, "rewards"),
        _statistics(path, prompts, rewards | {"pred": answers}, {**_ALWAYS, **_VOTED}, "rewards and answers"),
    ]


def _statistics(
    path: str, prompts: Codec, infos: Mapping[str, Codec], outputs: Mapping[str, Output], setting: str
) -> Boundary:
    passed: list[Codec] = [Derived(lambda inputs: ["task"] * inputs.batch.rows), prompts, Table(infos)]
    if path != PROCESS:
        passed = [Derived(lambda _inputs: SimpleNamespace()), *passed, Derived(lambda _inputs: [])]
    step = Step(
        call=path,
        name="found",
        arguments={str(place): codec for place, codec in enumerate(passed)},
        doubles={BOOTSTRAP: every_draw},
        produced_by={"1": _PRODUCED},
    )
    read = Step(
        call=logged,
        name="logged",
        arguments={"found": Earlier(Use("found")), "samples": Derived(lambda inputs: group_sizes(inputs)[0])},
    )
    return Boundary(
        path=path,
        stage="metric",
        steps=(step, read),
        reads=frozenset({"reward", "group"}),
        outputs=_placed(outputs),
        settings={setting: {}},
        claims=_CLAIMS,
        reach="every validation; rollout.val_kwargs.n above 1",
        requires=(prompts_are_contiguous, groups_are_equal, few_samples),
    )


def _placed(outputs: Mapping[str, Output]) -> dict[str, Output]:
    return {
        name: Output(o.axes, o.unit, o.quantity, over=o.over, at=Use("logged")[name]) for name, o in outputs.items()
    }


def _bootstrap(size: str) -> Boundary:
    def drawn(inputs: Inputs) -> int:
        return 2 if size == "two" else inputs.batch.rows

    step = Step(
        call=extremes,
        name="found",
        arguments={"estimate": Constant(Function(BOOTSTRAP)), "data": Labels("reward"), "size": Derived(drawn)},
        doubles={f"{_MODULE}.np.random.choice": all_rows},
        produced_by={"data": "metric_utils.py, process_validation_metrics: rewards of one prompt; all, or fewer"},
    )
    best, worst = ("best_of_two", "worst_of_two") if size == "two" else ("best_sample", "worst_sample")
    found = Use("found")
    return Boundary(
        path=BOOTSTRAP,
        stage="metric",
        steps=(step,),
        reads=frozenset({"reward", "group"}),
        outputs={
            "best": Output("", "reward", best, over="all", at=found[0][0]),
            "worst": Output("", "reward", worst, over="all", at=found[1][0]),
        },
        settings={f"samples: {size}": {}},
        claims=claims(
            "metric_utils.py, bootstrap_metric, docstring: bootstrap sampling with replacement",
            output_definitions=dict.fromkeys(("best", "worst"), "drawn with replacement"),
        ),
        reach="every validation; rollout.val_kwargs.n above 1",
        requires=(one_prompt, few_samples),
    )
