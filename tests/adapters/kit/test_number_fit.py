"""Numbers of a formula that the code of a user's function has as literals."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from adapters.checks import the_only
from rl_sentinel.adapters.live_target import live_target
from rl_sentinel.adapters.user_function import Statement, describe
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claims import claims


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum()


def clipped(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    ratio = (logprobs - old_logprobs).exp()
    return -masked_mean(torch.minimum(ratio * advantages, ratio.clamp(0.9, 1.3) * advantages), mask)


def with_a_ceiling(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    ratio = (logprobs - old_logprobs).exp()
    usual = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -masked_mean(torch.where(advantages < 0, torch.maximum(usual, 2.5 * advantages), usual), mask)


def per_fixed_length(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    ratio = (logprobs - old_logprobs).exp()
    kept = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -((kept * mask).sum(1) / 16).mean()


def with_a_wrong_sign(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    ratio = (logprobs - old_logprobs).exp()
    return masked_mean(torch.minimum(ratio * advantages, ratio.clamp(0.9, 1.3) * advantages), mask)


def described(function: Callable[..., Tensor], **stated: str) -> Boundary:
    target = live_target(function)
    return the_only(describe(target, target.path, Statement(stage="policy-loss", claims=claims("stated", **stated))))


def test_a_clip_range_is_found_although_its_sides_differ() -> None:
    settings = described(clipped, algorithm="ppo", aggregation="token-mean").settings["default"]
    assert settings["clip_low"] == pytest.approx(0.1)
    assert settings["clip_high"] == pytest.approx(0.3)


def test_a_ceiling_is_found() -> None:
    settings = described(with_a_ceiling, algorithm="ppo", aggregation="token-mean").settings["default"]
    assert settings["ceiling"] == 2.5
    assert settings["clip_low"] == pytest.approx(0.2)


def test_a_fixed_length_is_found() -> None:
    boundary = described(per_fixed_length, algorithm="ppo", aggregation="token-sum-by-constant")
    assert boundary.settings["default"]["length"] == 16.0


def test_a_wrong_loss_gets_the_only_range_in_its_code() -> None:
    boundary = described(with_a_wrong_sign, algorithm="ppo", aggregation="token-mean")
    assert boundary.settings["default"]["clip_low"] == pytest.approx(0.1)
    assert not boundary.undecided  # the formula is compared, so that the sign is found


def test_numbers_that_are_not_in_the_code_leave_the_formula_undecided() -> None:
    low, high = torch.tensor(0.93), torch.tensor(1.17)

    def hidden(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        ratio = (logprobs - old_logprobs).exp()
        return -masked_mean(torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages), mask)

    boundary = described(hidden, algorithm="ppo", aggregation="token-mean")
    assert boundary.claims.algorithm is None
    assert "which needs clip_low and clip_high: state numbers=" in boundary.undecided
