"""Outcome estimators of :mod:`rl_sentinel.signal` in verl's own registry.

Import this module where the trainer starts, and name the estimator::

    import rl_sentinel.remedies.verl    # in the script that calls verl's main_ppo
    algorithm.adv_estimator=sentinel_grpo

A response without a trained token (rejected, truncated, padding) then moves nobody's advantage. verl
keeps a lone response's raw reward in some estimators; here it gets 0, as all others of a group do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est

from rl_sentinel.signal.advantage import gpg, grpo, opo, passk, reinforce_plus_plus_baseline, rloo
from rl_sentinel.signal.align import spread
from rl_sentinel.signal.reduce import row_sums

#: Added to a deviation, in reward units; verl's own number.
EPSILON = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What verl hands to an estimator, one row per response, and its one choice."""

    reward: Tensor
    group: Tensor
    live: Tensor
    length: Tensor
    by_deviation: bool

    @property
    def rows(self) -> dict[str, Tensor]:
        """What every outcome estimator is told of the rows."""
        return {"group": self.group, "live": self.live}


#: Name after ``sentinel_`` -> the estimator.
ESTIMATORS: dict[str, Callable[[Asked], Tensor]] = {
    "grpo": lambda x: grpo.advantages(x.reward, **x.rows, standardise=x.by_deviation, epsilon=EPSILON),
    "rloo": lambda x: rloo.advantages(x.reward, **x.rows),
    "opo": lambda x: opo.advantages(x.reward, **x.rows, length=x.length),
    "grpo_passk": lambda x: passk.advantages(x.reward, **x.rows),
    "gpg": lambda x: gpg.advantages(x.reward, **x.rows),
    "reinforce_plus_plus_baseline": lambda x: reinforce_plus_plus_baseline.advantages(
        x.reward, **x.rows, epsilon=EPSILON
    ),
}


def _answer(
    estimator: Callable[[Asked], Tensor],
    *,
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray,
    config: Any = None,  # noqa: ANN401 - verl's configuration, of several classes over its releases
    **_more: object,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns ``[B, T]`` as verl wants them; the outcome is the sum of a row's rewards."""
    mask = response_mask.bool()
    group = torch.from_numpy(np.unique(np.asarray(index).astype(str), return_inverse=True)[1]).to(mask.device)
    by_deviation = bool(config.get("norm_adv_by_std_in_grpo", True)) if config is not None else True
    reward = row_sums(token_level_rewards, mask=torch.ones_like(mask))
    row = estimator(Asked(reward, group, mask.any(dim=1), mask.sum(dim=1), by_deviation))
    found = spread(row, mask=mask)
    return found, found


for name, estimator in ESTIMATORS.items():
    register_adv_est(f"sentinel_{name}")(partial(_answer, estimator))
