"""Random cases from a seed: unequal groups and lengths, outcomes and advantages that differ."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Case
from rl_sentinel.search.filled_batch import LOG_RATIOS, at_least, filled

#: Factor of the log-ratios to the reference, which then reach three nats: some KL estimators are clamped there.
FAR = 1.5


def _numbers(rng: np.random.Generator, *shape: int) -> Tensor:
    """Multiples of an eighth between -2 and 2: exact in every float dtype in use."""
    return torch.from_numpy(rng.integers(-16, 17, shape) / 8).float()


@lru_cache(maxsize=256)
def _batch(seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    b, t = int(rng.integers(2, 9)), int(rng.integers(1, 7))
    length = rng.integers(1, t + 1, b)
    inside = np.arange(t) < length[:, None]
    mask = inside & (rng.random((b, t)) < rng.choice([1.0, 0.7]))
    mask[rng.random(b) < rng.choice([0.0, 0.3])] = False
    group = rng.integers(0, max(2, b // 3), b)
    logprob = -_numbers(rng, b, t).abs() - 0.125
    old = logprob - torch.from_numpy(rng.choice(LOG_RATIOS, (b, t))).float()
    rollout = old - torch.from_numpy(rng.choice(LOG_RATIOS, (b, t))).float()
    scored = (length < t) if rng.random() < 0.3 else np.ones(b, dtype=bool)
    return filled(
        mask.astype(int).tolist(),
        reward=_numbers(rng, b).tolist(),
        group=group.tolist(),
        length=length.tolist(),
        scored=torch.from_numpy(scored),
        logprob=logprob,
        old_logprob=old,
        rollout_logprob=rollout,
        ref_logprob=logprob - _numbers(rng, b, t) * FAR,
        advantage=_numbers(rng, b, t),
        value=_numbers(rng, b, t),
        old_value=_numbers(rng, b, t),
        returns=_numbers(rng, b, t),
        reward_baseline=_numbers(rng, b),
        reward_parts=_numbers(rng, b, 2),
        pi_squared=at_least(logprob),
        logits=_numbers(rng, b, t, 3),
        ref_logits=_numbers(rng, b, t, 3),
        token=torch.from_numpy(rng.integers(1, 3, (b, t))),
    )


def random_case(seed: int, setting: str = "default") -> Case:
    """One case; the same seed gives the same case on every machine.

    Do not modify its batch: it is cached.
    """
    return Case(batch=_batch(seed), setting=setting, seed=seed)


def random_cases(seed: int, count: int, setting: str = "default") -> list[Case]:
    """``count`` random cases from one seed; a larger count gives the same cases and further cases."""
    return [random_case(seed * 1_000_003 + i, setting) for i in range(count)]
