"""Clip bounds of a loss, found by the ratios at which its gradient stops."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from adapters.checks import the_only
from rl_sentinel.adapters.kit.clip_bounds import clip_bounds
from rl_sentinel.adapters.live_target import live_target
from rl_sentinel.adapters.user_function import Statement, describe
from rl_sentinel.core.boundary import Boundary

CANDIDATES = (0.1, 0.2, 0.28, 0.3, 0.5, 0.2)


def clipped(ratio: Tensor, advantages: Tensor, low: float, high: float, *, larger: bool = False) -> Tensor:
    products = torch.stack([ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages])
    return products.amax(0) if larger else products.amin(0)


def mean(values: Tensor, mask: Tensor) -> Tensor:
    return -(values * mask).sum() / mask.sum()


def usual(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return mean(clipped((logprobs - old_logprobs).exp(), advantages, 0.2, 0.28), mask)


def with_the_larger_product(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return mean(clipped((logprobs - old_logprobs).exp(), advantages, 0.2, 0.28, larger=True), mask)


def with_an_entropy_bonus(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return usual(logprobs, old_logprobs, advantages, mask) + 0.1 * mean(logprobs.exp(), mask)


def without_a_clip(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return mean((logprobs - old_logprobs).exp() * advantages, mask)


def at_other_bounds(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return mean(clipped((logprobs - old_logprobs).exp(), advantages, 0.15, 0.15), mask)


def with_a_gap(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    ratio = (logprobs - old_logprobs).exp()
    distance = (ratio - 1).abs()
    return mean(ratio * advantages * ((distance < 0.2) | (distance > 0.5)), mask)


def without_old_logprobs(logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return mean(logprobs * advantages, mask)


def boundary_of(function: Callable[..., Any]) -> tuple[Any, Boundary]:
    target = live_target(function)
    return target, the_only(describe(target, target.path, Statement(stage="policy-loss")))


@pytest.mark.parametrize("loss", [usual, with_the_larger_product, with_an_entropy_bonus])
def test_bounds_are_found(loss: Callable[..., Any]) -> None:
    assert clip_bounds(*boundary_of(loss), CANDIDATES) == {"clip_low": 0.2, "clip_high": 0.28}


@pytest.mark.parametrize("loss", [without_a_clip, at_other_bounds, with_a_gap, without_old_logprobs])
def test_no_or_several_bounds_are_none(loss: Callable[..., Any]) -> None:
    assert clip_bounds(*boundary_of(loss), CANDIDATES) is None


def test_candidates_that_are_no_distance_are_left_out() -> None:
    assert clip_bounds(*boundary_of(usual), [0.2, 0.28, 0.0, 1.0, 3.0, -0.5]) == {"clip_low": 0.2, "clip_high": 0.28}
    assert clip_bounds(*boundary_of(usual), [0.2]) is None
