"""Random batches in float64, with NaN at every number that no function may read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, batch_of

#: Number of random cases for each function.
CASES = 500

#: Most rows of a case.
_ROWS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """``[B]`` and ``[B, T]`` columns of one case, or of many cases in one batch."""

    reward: Tensor
    baseline: Tensor
    group: Tensor
    length: Tensor
    live: Tensor
    scored: Tensor
    mask: Tensor
    logprob: Tensor
    old: Tensor
    ref: Tensor
    rollout: Tensor
    advantage: Tensor
    value: Tensor
    token_reward: Tensor
    turn: Tensor

    def batch(self, **changed: Any) -> Batch:
        """The same numbers as a batch, which the formulas read; the returns are the rewards per token."""
        columns = {
            **{n: getattr(self, n) for n in ("reward", "group", "length", "scored", "logprob", "advantage", "value")},
            "reward_baseline": self.baseline,
            "old_logprob": self.old,
            "old_value": self.old,
            "ref_logprob": self.ref,
            "rollout_logprob": self.rollout,
            "token_reward": self.token_reward,
            "returns": self.token_reward,
            "turn": self.turn,
        }
        return batch_of(**{"mask": self.mask, **columns, **changed})


def _drawn(rng: np.random.Generator, rows: int, width: int, groups: np.ndarray) -> Draw:
    length = rng.integers(1, width + 1, rows)
    mask = (np.arange(width) < length[:, None]) & (rng.random((rows, width)) < rng.choice([1.0, 0.7], (rows, 1)))
    mask[rng.random(rows) < 0.2] = False
    live = np.asarray(mask.any(1))

    def tokens(spread: float) -> Tensor:
        return torch.from_numpy(np.where(mask, rng.normal(0, spread, (rows, width)), np.nan))

    def of_rows(where: np.ndarray) -> Tensor:
        near = rng.integers(-2, 3, rows) + rng.choice([0.0, 0.0, 0.3], rows)
        return torch.from_numpy(np.where(where, near, np.nan))

    scored = rng.random(rows) < 0.7
    return Draw(
        reward=of_rows(live),
        baseline=of_rows(live),
        group=torch.from_numpy(groups),
        length=torch.from_numpy(length),
        live=torch.from_numpy(live),
        scored=torch.from_numpy(scored),
        mask=torch.from_numpy(mask),
        logprob=tokens(1.0),
        old=tokens(1.0),
        ref=tokens(1.0),
        rollout=tokens(1.0),
        advantage=tokens(1.0),
        value=tokens(1.0),
        token_reward=tokens(1.0),
        turn=torch.from_numpy(np.where(mask, _turns(rows, width), -9)),
    )


def _turns(rows: int, width: int) -> np.ndarray:
    """Turns of three tokens; the first turn of two in three rows is shorter. Turn numbers have gaps."""
    return 2 * np.cumsum((np.arange(width) + np.arange(rows)[:, None]) % 3 == 0, axis=1) - 3


def cases(count: int = CASES, seed: int = 0, width: int = 5) -> Iterator[Draw]:
    """Yield batches of one to six rows in one to three groups."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        rows = int(rng.integers(1, _ROWS + 1))
        yield _drawn(rng, rows, width, rng.choice([-3, 7, 2**40], rows))


def together(count: int = CASES, seed: int = 0, width: int = 5) -> Draw:
    """Cases that are each one group, as one batch in shuffled order."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(count) - count // 2, rng.integers(1, _ROWS + 1, count))
    return _drawn(rng, len(groups), width, rng.permutation(groups))
