"""Replacements that verl's reward managers use: a tokenizer, a scoring function, an in-process pool."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.forms import Padded, zero_padding
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Inputs, Sizes

#: The token of padding and of prompts, which no text shows: some releases score the prompt with its response.
SPECIAL = 0


@dataclass(frozen=True, slots=True)
class Text(Padded):
    """Token ids that every tokenizer shows: positive, with the token of padding behind the response."""

    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The ids without their sign, from 1 on."""
        return Padded.lay_out(self, torch.where(inputs.batch.valid, column.abs() + 1, SPECIAL), inputs)

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """The ids, 0 in the padding."""
        return (Padded.read(self, value, sizes) - 1).clamp(min=0)

    def canonical(self, column: Tensor, batch: Batch) -> Tensor:
        """The sign, and the padding."""
        return zero_padding(column.abs(), batch)


class Tokens:
    """A tokenizer that writes token ids as they are."""

    eos_token = "</s>"  # noqa: S105 - a word of the vocabulary, no secret

    def decode(self, ids: Tensor, **_options: object) -> str:
        """The ids as words, without padding."""
        return " ".join(str(i) for i in ids.tolist() if i != SPECIAL)

    def batch_decode(self, rows: Tensor, **_options: object) -> list[str]:
        """Each row as words."""
        return [self.decode(row) for row in rows]


def ground_truth(reward: float, response: Tensor) -> dict[str, Any]:
    """What a data set would say of a row: the text that is right, and what it is worth."""
    return {"text": Tokens().decode(response), "reward": reward}


def _scored(text: str, truth: dict[str, Any]) -> float:
    """The outcome reward of the response; a text that is not the response, by a token too, is worth another."""
    return float(truth["reward"]) + (0.0 if text == truth["text"] else 1.0)


def score(*, ground_truth: Any = None, solution_str: str = "", **about: Any) -> Any:  # noqa: ANN401 - one score or many
    """The score of a response, or of each of a list of them."""
    if ground_truth is not None:
        return _scored(solution_str, ground_truth)
    return [_scored(*pair) for pair in zip(about["solution_strs"], about["ground_truths"], strict=True)]


def score_in_order(_source: str, solution: str, truth: dict[str, Any], _about: object = None) -> float:
    """The same, for a manager that does not name what it passes."""
    return _scored(solution, truth)


def score_each(manager: Any, data: Any) -> Tensor:  # noqa: ANN401 - a manager of the reward loop, and its batch
    """Each response through the manager's own coroutine, then the scores assembled as the loop does."""
    rows = [manager.loop.run_until_complete(manager.run_single(data[i : i + 1])) for i in range(len(data))]
    found: Tensor = manager.assemble_rm_scores(data, [float(row["reward_score"]) for row in rows])
    return found


class _Threads(ThreadPoolExecutor):
    """A declared double: a pool without processes."""

    def __init__(self, **_options: object) -> None:
        super().__init__(max_workers=1)
        self._processes: dict[int, object] = {}


class _Worker:
    """A declared double: a scoring worker of its own process, as it answers in this one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        async def answer(**given: object) -> Any:  # noqa: ANN401 - the scored object
            return function(**given)

        self.compute_score = SimpleNamespace(remote=answer)

    @classmethod
    def options(cls, **_options: object) -> Any:  # noqa: ANN401 - what places a worker
        """What makes workers wherever they should stand."""
        return SimpleNamespace(remote=cls)


def _cluster() -> Any:  # noqa: ANN401 - what ray offers
    """A declared double: a cluster of this machine alone."""
    strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda **_about: None)
    node = SimpleNamespace(get_node_id=lambda: "house")
    return SimpleNamespace(util=SimpleNamespace(scheduling_strategies=strategies), get_runtime_context=lambda: node)


def here(module: ModuleType) -> None:
    """Let a manager's module score in this process, where it would start others."""
    inside = vars(module)
    if "ProcessPoolExecutor" in inside:
        inside["ProcessPoolExecutor"] = _Threads
    if "RewardComputeWorker" in inside:
        inside |= {"RewardComputeWorker": _Worker, "ray": _cluster()}
