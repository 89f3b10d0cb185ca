"""TRL's planner of micro-batches for asynchronous GRPO: one row per sample, no row above the token budget."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

PLANNER = "trl.experimental.async_grpo.async_grpo_trainer.TokenBudgetBatcher"

#: Tokens of a prompt, which the samples of a group share; a row has room for this many more than the longest sample.
PROMPT, ROOM = 2, 3

#: Number of ranks, and of samples of a group.
RANKS, GROUP = 2, 2

_SAYS = (
    "async_grpo_trainer.py, TokenBudgetBatcher, docstring: one row per rank within the token budget; a sample without "
    "room closes the micro-batch and opens the next"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the planner, in releases whose rows share prefixes.

    :mod:`async_loss` reports a module that fails.
    """
    if target.has(f"{PLANNER}.__iter__") and not target.fails(PLANNER) and target.has(f"{PLANNER}._place"):
        yield from bindable(target, _plan())


def planned_uses(planner: Callable[..., Iterable[Any]], lengths: Tensor) -> list[float]:
    """Plan micro-batches; return how often each sample is in a row that does not exceed the token budget."""
    counts = [int(words) for words in lengths.sum(1).tolist()]
    budget = PROMPT + max(counts) + ROOM
    samples = [_sample(row // GROUP, row, words) for row, words in enumerate(counts)]
    rest = [_sample(-1 - n, len(samples) + n, budget - PROMPT) for n in range(2 * RANKS)]  # they close the last batch
    uses = [0.0] * len(samples)
    for batch in planner([*samples, *rest], RANKS, budget, defaultdict(list)):
        for row in batch:
            fits = len(row.pack()["input_ids"]) <= budget
            for sample in row.samples:
                if sample["number"] < len(samples):
                    uses[sample["number"]] += float(fits)
    return uses


def _sample(group: int, number: int, words: int) -> dict[str, Any]:
    """A sample in the queue's format: the tokens of the group's prompt, and unique tokens, which train."""
    ids = [10 + group] * PROMPT + [100 * (number + 1) + n for n in range(words)]
    return {
        "number": number,
        "input_ids": torch.tensor(ids),
        "completion_mask": torch.tensor([0] * PROMPT + [1] * words),
        "old_log_probs": torch.zeros(len(ids)),
        "advantage": 1.0,
        "group_id": group,
    }


def _plan() -> Boundary:
    return one_call(
        path=PLANNER,
        stage="batch",
        call=planned_uses,
        name="uses",
        arguments={"planner": Constant(Function(PLANNER)), "lengths": ResponseMask(NoPadding())},
        remembered=True,
        produced_by={"lengths": "async_rollout_worker.py: samples with the prompt of their group, one after the other"},
        outputs={"uses": Output("B", "count", "uses", at=Use("uses"), form=PerRow("list"))},
        settings={"a budget for a few samples": {}},
        claims=claims(_SAYS),
        reach="AsyncGRPOTrainer, token_budget",
        requires=(no_empty_response,),
    )
