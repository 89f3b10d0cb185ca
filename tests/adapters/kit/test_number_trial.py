"""Values that are tried for the numbers of a formula which a user's code has as literals."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from adapters.checks import the_only
from rl_sentinel.adapters.kit.number_trial import candidates, fits_formula, fitting_numbers, missing_numbers
from rl_sentinel.adapters.kit.numbers_in_code import Literals
from rl_sentinel.adapters.live_target import live_target
from rl_sentinel.adapters.user_function import Statement, describe
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claims import claims


def narrow(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    ratio = (logprobs - old_logprobs).exp()
    kept = torch.minimum(ratio * advantages, ratio.clamp(0.85, 1.35) * advantages)
    return -(kept * mask).sum() / mask.sum()


def not_clipped(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return -((logprobs - old_logprobs).exp() * advantages * mask).sum() / mask.sum()


def boundary_of(function: Callable[..., Tensor], **stated: str) -> Boundary:
    target = live_target(function)
    return the_only(describe(target, target.path, Statement(stage="policy-loss", claims=claims("stated", **stated))))


def without_numbers(function: Callable[..., Tensor]) -> Boundary:
    """The boundary of a PPO loss without the numbers that were found in its code."""
    return replace(boundary_of(function, algorithm="ppo", aggregation="token-mean"), settings={"default": {}})


@pytest.mark.parametrize(
    ("name", "literals", "expected"),
    [
        ("clip_low", (0.8, 1.3, 5.0), (0.8, 0.2, 0.3)),  # a range, or one of its bounds
        ("clip_high", (), (0.2, 0.28, 0.1, 0.3)),
        ("epsilon", (1e-6, 0.2), (1e-6,)),  # a clip range is no offset of a divisor
        ("gamma", (1e-6, 0.99), (1.0, 0.99)),  # and an offset no discount
        ("kl_coef", (-0.05, 3.0), (0.05,)),
        ("kl_loss_coef", (0.5,), (0.5,)),
        ("ceiling", (-1.0, 3.0, 0.5), (3.0, 0.5)),
        ("temperature", (), ()),
    ],
)
def test_candidates(name: str, literals: tuple[float, ...], expected: tuple[float, ...]) -> None:
    assert candidates(name, literals) == pytest.approx(expected)


def test_the_numbers_of_the_formula_are_fitted() -> None:
    boundary = without_numbers(narrow)
    assert set(missing_numbers(boundary)) == {"clip_low", "clip_high"}
    literals = Literals(floats=(0.15, 0.35, 0.9))
    found = fitting_numbers(live_target(narrow), boundary, ["clip_low", "clip_high"], literals)
    assert found is not None
    assert list(found.values()) == pytest.approx([0.15, 0.35])


def test_numbers_that_do_not_fit_are_not_taken() -> None:
    missing = ["clip_low", "clip_high"]
    for function, literals in ((narrow, (0.2, 0.9)), (not_clipped, (0.15, 0.35))):
        boundary = without_numbers(function)
        assert fitting_numbers(live_target(function), boundary, missing, Literals(floats=literals)) is None


def test_a_result_with_the_other_sign_is_compared_if_asked() -> None:
    boundary, literals = without_numbers(narrow), Literals(floats=(0.15, 0.35))
    missing = ["clip_low", "clip_high"]
    assert fitting_numbers(live_target(narrow), boundary, missing, literals, sign=-1) is None


def test_a_formula_with_unknown_numbers_does_not_fit() -> None:
    assert fits_formula(live_target(narrow), boundary_of(narrow, algorithm="ppo", aggregation="token-mean"))
    assert not fits_formula(live_target(narrow), without_numbers(narrow))
