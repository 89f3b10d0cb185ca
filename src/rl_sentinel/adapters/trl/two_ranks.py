"""Rollouts on two data-parallel ranks, or on one rank if the number of rows is odd, for laws that do not vary ranks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachPart, Object
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.requirements import group_sizes
from rl_sentinel.adapters.kit.value_codecs import Derived
from rl_sentinel.adapters.trl.arguments import Completions, trainer
from rl_sentinel.adapters.trl.rollout_fakes import ready_to_score
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec, Inputs


def rank_count(inputs: Inputs) -> int:
    """Two ranks, or one if the rows do not divide into two equal parts."""
    return 1 if inputs.batch.rows % 2 else 2


@dataclass(frozen=True, slots=True)
class EachRank(EachPart):
    """A list with one item per rank; all ranks have the same number of rows."""

    def counts(self, inputs: Inputs) -> list[int]:
        """The number of rows of each rank."""
        ranks = rank_count(inputs)
        return [inputs.batch.rows // ranks] * ranks


def rollout_ranks(kind: str, settings: Settings, cut: str = "scored", room: int = 0) -> EachRank:
    """The trainers of the ranks before a rollout; the completions of a prompt may be on both ranks.

    ``cut`` is the column that marks truncated completions, as in :class:`Completions`. ``room`` is the number of tokens
    by which the step lengthens completions. RLOO sums the log-probs of the old policy, which are 0 here.
    """
    parts: dict[str, Codec] = {
        "trainer": trainer(kind, settings),
        "rank": Derived(lambda inputs: inputs.part[0]),
        "ranks": Derived(lambda inputs: inputs.part[1]),
        "generations": Derived(lambda inputs: max(group_sizes(Inputs(inputs.mini_batch)))),
        "completions": Completions(cut=cut),
        "rewards": Column("reward", PerRow("list")),
    }
    if kind == "rloo":
        parts["old_logprobs"] = Derived(lambda inputs: torch.zeros(inputs.batch.rows, inputs.batch.width + room))
    at = {name: f"rollout.{name}" for name in ("completions", "rewards")}
    at |= {"trainer": "", "generations": "num_generations"}
    at |= {"rank": "accelerator.process_index", "ranks": "accelerator.num_processes"}
    return EachRank(Object(ready_to_score, parts, at=at))


def score_rows(method: str, trainers: list[Any], inputs: list[dict[str, str]]) -> list[Mapping[str, Tensor]]:
    """Sample and score the rows of each rank, and return the scored rollouts."""
    size = len(inputs) // len(trainers)
    parts = [inputs[rank * size : (rank + 1) * size] for rank in range(len(trainers))]
    return run_on_ranks(len(trainers), lambda rank: getattr(trainers[rank], method)(parts[rank]))


def rank_advantages(method: str, trainers: list[Any], inputs: list[dict[str, str]]) -> Tensor:
    """The advantages of all rows, as computed on their ranks."""
    return torch.cat([scored["advantages"] for scored in score_rows(method, trainers, inputs)])
