"""What frameworks hand over in common: token rewards, masks of numbers, labels of any kind."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.signal.align import spread
from rl_sentinel.signal.groups import centered, deviations
from rl_sentinel.signal.reduce import row_sums, selected
from rl_sentinel.signal.scan import discounted_suffix_sums, lined_up, put_back, trained_first

T = TypeVar("T")


def either(given: T | None, otherwise: T) -> T:
    """What was configured, or what stands for it."""
    return otherwise if given is None else given


def facts(mask: Tensor | None, like: Tensor) -> Tensor:
    """The mask as facts; everything where there is none."""
    return torch.ones_like(like, dtype=torch.bool) if mask is None else mask.bool()


def groups(index: Any) -> Tensor:  # noqa: ANN401 - an array of numbers or of strings
    """Whole numbers for labels of any kind."""
    return torch.from_numpy(np.unique(np.asarray(index).astype(str), return_inverse=True)[1])


def outcome(
    estimator: Callable[..., Tensor],
    token_rewards: Tensor,
    mask: Tensor,
    index: Any,  # noqa: ANN401 - labels of any kind
    **numbers: Any,  # noqa: ANN401 - what the estimator wants besides
) -> tuple[Tensor, Tensor]:
    """An outcome estimator, from token rewards to token advantages, which are the returns too."""
    where = mask.bool()
    reward = row_sums(token_rewards, mask=torch.ones_like(where))
    row = estimator(reward, group=groups(index), live=where.any(dim=1), **numbers)
    found = spread(row, mask=where).to(token_rewards.dtype)
    return found, found


def rewards_to_go(token_rewards: Tensor, *, mask: Tensor, discount: float) -> Tensor:
    """Discounted sums over the trained tokens that follow, 0 elsewhere."""
    order = trained_first(mask=mask)
    reward = lined_up(selected(token_rewards, mask=mask), mask=mask, order=order)
    return put_back(discounted_suffix_sums(reward, discount=discount), mask=mask, order=order)


def whitened(values: Tensor, mask: Tensor) -> Tensor:
    """About the mean of what counts and by its deviation, as frameworks do to what GAE gives."""
    flat, live = values.flatten(), mask.flatten()
    everyone = torch.zeros_like(live, dtype=torch.long)
    scale = (deviations(flat, group=everyone, live=live).square() + 1e-8).sqrt()
    return (centered(flat, group=everyone, live=live) / scale).view(values.shape)
