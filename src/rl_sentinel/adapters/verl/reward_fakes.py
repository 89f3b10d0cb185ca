"""Fakes for verl's reward managers: a tokenizer, a scoring function, an in-process pool."""

import asyncio
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

#: Token of padding and prompts, which has no text: some releases score the prompt together with the response.
SPECIAL = 0

#: Token of prompts whose text must not be scored with the response.
WORD = 9

#: The data source of all rows, by which a scoring function is chosen.
SOURCE = "house"


@dataclass(frozen=True, slots=True)
class Text(Padded):
    """Token ids that decode to text: 1 or higher, with the padding token after the response."""

    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The absolute value of the ids, plus 1."""
        return Padded.lay_out(self, torch.where(inputs.batch.valid, column.abs() + 1, SPECIAL), inputs)

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """The ids, with 0 in the padding."""
        return (Padded.read(self, value, sizes) - 1).clamp(min=0)

    def canonical(self, column: Tensor, batch: Batch) -> Tensor:
        """The ids without sign, and with 0 in the padding."""
        return zero_padding(column.abs(), batch)


class Tokens:
    """A fake tokenizer that decodes a token id to its number."""

    eos_token = "</s>"  # noqa: S105 - a token of the vocabulary, not a secret

    def decode(self, ids: Tensor, **_options: object) -> str:
        """The ids as text, without padding."""
        return " ".join(str(i) for i in ids.tolist() if i != SPECIAL)

    def batch_decode(self, rows: Tensor, **_options: object) -> list[str]:
        """Each row as text."""
        return [self.decode(row) for row in rows]


def ground_truth(reward: float, response: Tensor, *, informed: bool = False) -> dict[str, Any]:
    """The ground truth of a row: the correct text, and its reward; if ``informed``, the score needs extra_info too."""
    return {"text": Tokens().decode(response), "reward": reward, **({"informed": True} if informed else {})}


def extra_info(response: Tensor) -> dict[str, Any]:
    """The extra information of a row in a dataset: the correct text."""
    return {"text": Tokens().decode(response)}


def _scored(text: str, truth: dict[str, Any], source: str = SOURCE, extra: Any = None) -> float:  # noqa: ANN401 - a dict
    """The reward of the correct text; 1 more for another text, source or information, so that mistakes are visible."""
    informed = "informed" not in truth or (extra or {}).get("text") == truth["text"]
    return float(truth["reward"]) + (0.0 if text == truth["text"] and source == SOURCE and informed else 1.0)


def score(*, ground_truth: Any = None, solution_str: str = "", **about: Any) -> Any:  # noqa: ANN401 - one score or many
    """The score of a response, or the scores of a list of responses."""
    if ground_truth is not None:
        return _scored(solution_str, ground_truth, about.get("data_source", SOURCE), about.get("extra_info"))
    texts, truths = about["solution_strs"], about["ground_truths"]
    sources, extras = about.get("data_sources", [SOURCE] * len(texts)), about.get("extra_infos", [None] * len(texts))
    return [_scored(*row) for row in zip(texts, truths, sources, extras, strict=True)]


def score_in_order(source: str, solution: str, truth: dict[str, Any], extra: Any = None) -> float:  # noqa: ANN401 - a dict
    """The score of a response, for a manager that passes positional arguments."""
    return _scored(solution, truth, source, extra)


def score_each(manager: Any, data: Any) -> Tensor:  # noqa: ANN401 - a manager of the reward loop, and its batch
    """Score each response with the manager's coroutine, then assemble the scores as the reward loop does."""
    return _assembled(manager, data, manager.loop.run_until_complete(_scores(manager, data)))


def score_each_in_loop(data: Any, kind: Any, config: Any, tokenizer: Tokens, compute_score: Any) -> Tensor:  # noqa: ANN401
    """:func:`score_each` for managers of earlier releases, whose constructor takes the running event loop."""

    async def run() -> Tensor:
        manager = kind(config, tokenizer, compute_score)
        return _assembled(manager, data, await _scores(manager, data))

    return asyncio.run(run())


async def _scores(manager: Any, data: Any) -> list[float]:  # noqa: ANN401 - as of score_each
    return [float((await manager.run_single(data[i : i + 1]))["reward_score"]) for i in range(len(data))]


def _assembled(manager: Any, data: Any, scores: list[float]) -> Tensor:  # noqa: ANN401 - as of score_each
    """The scores ``[B, T]``, each at the last token of its response.

    Before verl's f81209aca, ``_postprocess`` in agent_loop.py assembled them.
    """
    if hasattr(manager, "assemble_rm_scores"):
        assembled: Tensor = manager.assemble_rm_scores(data, scores)
        return assembled
    responses = data.batch["responses"]
    last = data.batch["attention_mask"][:, -responses.shape[1] :].sum(1) - 1
    return torch.zeros(responses.shape).scatter(1, last.unsqueeze(1), torch.tensor(scores).unsqueeze(1))


class _Threads(ThreadPoolExecutor):
    """A fake process pool with one thread."""

    def __init__(self, **_options: object) -> None:
        super().__init__(max_workers=1)
        self._processes: dict[int, object] = {}


class _Worker:
    """A fake ray worker that scores in this process."""

    def __init__(self, function: Callable[..., Any]) -> None:
        async def score(**arguments: object) -> Any:  # noqa: ANN401 - as the function
            return function(**arguments)

        self.compute_score = SimpleNamespace(remote=score)

    @classmethod
    def options(cls, **_options: object) -> Any:  # noqa: ANN401 - a factory
        """A factory of workers; placement options are ignored."""
        return SimpleNamespace(remote=cls)


def _cluster() -> Any:  # noqa: ANN401 - a fake for the module ray
    """A fake ``ray`` with one node."""
    strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda **_about: None)
    node = SimpleNamespace(get_node_id=lambda: "house")
    return SimpleNamespace(util=SimpleNamespace(scheduling_strategies=strategies), get_runtime_context=lambda: node)


def score_in_this_process(module: ModuleType) -> None:
    """Replace the pools and workers of a manager's module, so that it scores in this process."""
    names = vars(module)
    if "ProcessPoolExecutor" in names:
        names["ProcessPoolExecutor"] = _Threads
    if "RewardComputeWorker" in names:
        names |= {"RewardComputeWorker": _Worker, "ray": _cluster()}
