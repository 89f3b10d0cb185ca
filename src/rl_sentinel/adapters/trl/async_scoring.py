"""TRL's worker of asynchronous GRPO: it scores the completions of a prompt and makes the samples of the queue."""

import asyncio
import dataclasses
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.requirements import group_sizes, groups_are_equal, no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import trains_every_completion
from rl_sentinel.adapters.trl.token_model import FIRST, PROMPT
from rl_sentinel.adapters.trl.unscored_rewards import some_are_scored
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

_MODULE = "trl.experimental.async_grpo.async_rollout_worker"

#: The class that scores, by release: the loop of a child process, or the worker itself.
OWNERS = (f"{_MODULE}._AsyncRolloutLoop", f"{_MODULE}.AsyncRolloutWorker")

#: The fewest completions of a prompt whose rewards have a standard deviation.
SEVERAL = 2

#: More tokens than any completion of a case has.
LONGEST = 1000

#: The reward functions: each gives half of the reward.
FUNCTIONS = ("first", "second")

_SUMMED = "async_grpo_trainer.py, AsyncGRPOTrainer, docstring of reward_funcs: rewards from all functions are summed"
_NONE = (
    "async_grpo_trainer.py, AsyncGRPOTrainer, docstring of reward_funcs: a function that returns None for a sample is "
    "left out there, so a completion that no function scores has no reward"
)
_SAMPLES = (
    "async_rollout_worker.py, RolloutSample: ids of prompt and completion, mask and log-probs of the completion, and "
    "its reward; _score_loop puts each sample into the queue once"
)
_ADVANTAGE = claims(
    "async_rollout_worker.py, _score_group: (rewards - mean) / (std + 1e-8) over the completions of a prompt, with "
    "numpy's deviation",
    algorithm="grpo",
    scope="group",
    baseline="relative",
    credit="outcome",
    standardized=True,
    deviation="n",
)
_PRODUCER = "async_rollout_worker.py, _generate_loop: the completions of a prompt, in the order in which they finish"

#: The constant that is added to the standard deviation.
EPSILON: Settings = {"epsilon": 1e-8}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the advantages, also where some completions have no reward, and of the samples."""
    path = next((f"{owner}._score_group" for owner in OWNERS if target.has(f"{owner}._score_group")), "")
    if not path:
        return
    if why := target.fails(path):
        yield Unbound(path, "advantage", why)
        return
    yield from bindable(
        target, _advantages(path, "default", {}), _advantages(path, "some unscored", {"unscored": True}), _samples(path)
    )


def _step(path: str) -> Step:
    row: dict[str, Codec] = row_fields("mask", "logprobs", "reward", "group")
    return Step(
        call=score_groups,
        name="scored",
        arguments={
            **functions(entry=path, kind=path.rpartition(".")[0]),
            "rows": EachRow(Table(row)),
            "unscored": Knob("unscored", default=False),
        },
        produced_by={"rows": _PRODUCER},
    )


def _advantages(path: str, name: str, settings: Settings) -> Boundary:
    unscored = "unscored" in settings
    return Boundary(
        path=path,
        stage="advantage",
        steps=(_step(path),),
        unused=frozenset({"rollout_logprob"}),
        outputs={"advantage": Output("B", "reward", "advantage", at=Use("scored")["advantages"], form=PerRow("list"))},
        settings={name: {**settings, **EPSILON}},
        claims=_ADVANTAGE | claims(_NONE if unscored else _SUMMED),
        reach="two reward functions that return None for some completions" if unscored else "every rollout",
        requires=(
            groups_are_equal,
            several_completions,
            no_empty_response,
            some_are_scored if unscored else trains_every_completion,
        ),
    )


def several_completions(inputs: Inputs) -> str:
    """The reason to skip a batch with one completion per prompt (its standard deviation is 0); empty otherwise."""
    return "a prompt has one completion, which has no deviation" if max(group_sizes(inputs)) < SEVERAL else ""


def _samples(path: str) -> Boundary:
    place, form = Use("scored"), PerRow("list")
    return Boundary(
        path=path,
        stage="batch",
        steps=(_step(path),),
        unused=frozenset({"mask", "rollout_logprob"}),
        outputs={
            "reward": Output("B", "reward", "reward", at=place["rewards"], form=form),
            "samples of a completion": Output("B", "count", "uses", at=place["uses"], form=form),
            "columns that are not of the completion": Output(
                "B", "count", "columns_of_others", at=place["others"], form=form
            ),
        },
        settings={"samples": {}},
        claims=claims(_SAMPLES, conserves=True),
        reach="every rollout",
        requires=(groups_are_equal, no_empty_response, trains_every_completion),
    )


class Scores:
    """A reward function: half of the reward of each completion, which is known by the completion's text."""

    def __init__(self, name: str, rewards: Sequence[float | None]) -> None:
        """Store the name that logs use, and the reward of each completion."""
        self.__name__ = name
        self.rewards = rewards

    def __call__(self, completions: Sequence[Sequence[Mapping[str, str]]], **_columns: object) -> list[float | None]:
        """Half of the rewards of these completions; None where a completion has no reward."""
        found = [self.rewards[_number(messages)] for messages in completions]
        return [None if reward is None else reward / len(FUNCTIONS) for reward in found]


def _number(messages: Sequence[Mapping[str, str]]) -> int:
    """The index of the row with this completion."""
    return int(messages[0]["content"])


def score_groups(
    entry: Callable[..., Awaitable[list[Any]]],
    kind: Any,  # noqa: ANN401 - a class of the target
    rows: list[dict[str, Any]],
    unscored: bool,  # noqa: FBT001 - a setting
) -> dict[str, list[float]]:
    """Score the completions of each prompt; with ``unscored``, those without a trained token have no reward.

    Returns per row, from its samples: ``advantages`` and ``rewards``, NaN without a sample; ``uses``, the number of
    samples; and ``others``, the number of columns that differ from the sampled tokens.
    """
    rewards = [None if unscored and not any(row["mask"]) else row["reward"] for row in rows]
    worker = bare_instance(
        kind,
        reward_funcs=[Scores(name, rewards) for name in FUNCTIONS],
        reward_func_names=list(FUNCTIONS),
        _env_reward_types=[],
    )
    found = {
        "advantages": [float("nan")] * len(rows),
        "rewards": [float("nan")] * len(rows),
        "uses": [0.0] * len(rows),
        "others": [0.0] * len(rows),
    }
    for label in dict.fromkeys(row["group"] for row in rows):
        numbers = [n for n, row in enumerate(rows) if row["group"] == label]
        for sample in _scored(entry, worker, group_of(kind, numbers, rows)):
            number = _number(sample.completion)
            found["advantages"][number] = float(sample.advantage)
            found["rewards"][number] = float(sample.metrics["reward"])
            found["uses"][number] += 1.0
            found["others"][number] += _differing(sample, number, rows[number])
    return found


def _scored(entry: Callable[..., Awaitable[list[Any]]], worker: Any, group: Any) -> list[Any]:  # noqa: ANN401 - of the target
    """The samples that the worker makes of a group."""

    async def scored() -> list[Any]:
        return await entry(worker, group)

    plain = logging.getLogger(__name__)  # accelerate's logger needs a started process group
    with replaced_globals(vars(inspect.getmodule(entry)), logger=plain):
        return asyncio.run(scored())


def _columns(number: int, row: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The columns of a sample, over prompt and completion: ids, mask and log-probs."""
    prompt = _prompt(row)
    before = [0] * len(prompt)
    return {
        "input_ids": [*prompt, *_ids(number, row)],
        "completion_mask": [*before, *row["mask"]],
        "old_log_probs": [*map(float, before), *_log_probs(row)],
    }


def _prompt(row: Mapping[str, Any]) -> list[int]:
    """The tokens of a prompt: one, or two where the label of the group is odd."""
    return [PROMPT] * (1 + row["group"] % 2)


def _ids(number: int, row: Mapping[str, Any]) -> list[int]:
    """The ids of a completion, which no other completion of the batch has."""
    return [FIRST + LONGEST * number + place for place in range(len(row["mask"]))]


def _log_probs(row: Mapping[str, Any]) -> list[float]:
    """The log-probs of a completion, 0 at tokens that were not sampled."""
    return [logprob if trains else 0.0 for logprob, trains in zip(row["logprobs"], row["mask"], strict=True)]


def _differing(sample: Any, number: int, row: Mapping[str, Any]) -> float:  # noqa: ANN401 - of the target
    """The number of columns of a sample that differ from those of its completion."""
    return float(sum(list(getattr(sample, name)) != own for name, own in _columns(number, row).items()))


def group_of(kind: Any, numbers: Sequence[int], rows: Sequence[Mapping[str, Any]]) -> Any:  # noqa: ANN401 - of the target
    """The completions of one prompt, in the form in which the release's ``_generate_loop`` collects them."""
    module: Any = inspect.getmodule(kind)
    kinds = {field.name: str(field.type) for field in dataclasses.fields(module.RolloutGroup)}
    own, count = [rows[number] for number in numbers], len(numbers)
    asked = [{"role": "user", "content": f"w{own[0]['group']}"}]
    each = kinds.get("prompt_ids", "").count("list") > 1  # a list per completion, where prompts may differ
    known: dict[str, Any] = {
        "prompt": asked,
        "prompts": [asked] * count,
        "prompt_ids": [_prompt(row) for row in own] if each else _prompt(own[0]),
        "reward_kwargs": {},
        "completions": [[{"role": "assistant", "content": str(number)}] for number in numbers],
        "completions_ids": [_ids(number, row) for number, row in zip(numbers, own, strict=True)],
        "completions_logprobs": [_log_probs(row) for row in own],
        "tool_mask": [list(row["mask"]) for row in own],
        **dict.fromkeys(("tool_call_counts", "tool_failure_counts"), [0] * count),
        "model_version": 0,
        "group_id": own[0]["group"],
        **dict.fromkeys(("env_rewards", "rollout_rewards"), [None] * count),
    }
    if "completions_sequences" in kinds:
        known["completions_sequences"] = [
            [module.TrainingSequence(**_columns(number, row), rollout_id=str(number))]
            for number, row in zip(numbers, own, strict=True)
        ]
    return module.RolloutGroup(**{name: value for name, value in known.items() if name in kinds})
