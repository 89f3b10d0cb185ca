"""Losses that normalize their advantages are told from losses that use them as they are."""

from collections.abc import Callable

import pytest
from torch import Tensor

from adapters.checks import the_only
from rl_sentinel.adapters.kit.normalized_advantages import normalizes_advantages
from rl_sentinel.adapters.live_target import live_target
from rl_sentinel.adapters.user_function import Statement, describe


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum()


def plain(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return -masked_mean((logprobs - old_logprobs).exp() * advantages, mask)


def normalizing(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    center = masked_mean(advantages, mask)
    scale = masked_mean((advantages - center) ** 2, mask).sqrt()
    return plain(logprobs, old_logprobs, (advantages - center) / scale, mask)


def centering(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return plain(logprobs, old_logprobs, advantages - masked_mean(advantages, mask), mask)


def without_advantages(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    return masked_mean((logprobs - old_logprobs) ** 2, mask)


def constant(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return masked_mean((logprobs - old_logprobs) ** 2, mask) + 0.0 * advantages.sum()


def raising(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    raise ValueError(f"no loss of {logprobs.shape}, {old_logprobs.shape}, {advantages.shape}, {mask.shape}")


def detected(loss: Callable[..., Tensor]) -> bool:
    target = live_target(loss)
    boundary = the_only(describe(target, target.path, Statement(stage="policy-loss")))
    return normalizes_advantages(target, boundary)


def test_a_loss_that_normalizes() -> None:
    assert detected(normalizing)


@pytest.mark.parametrize("loss", [plain, centering, without_advantages, constant, raising])
def test_other_losses(loss: Callable[..., Tensor]) -> None:
    assert not detected(loss)
