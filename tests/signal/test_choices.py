"""Choices of a signal path: those that exclude each other, or could not be carried out, are refused."""

from functools import partial
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal import kl
from rl_sentinel.signal.advantage import grpo
from rl_sentinel.signal.choices import Choices
from rl_sentinel.signal.correction import bounds, weights

CENTERED = partial(grpo.advantages, standardize=False, epsilon=0.0)


def test_choices_that_exclude_each_other() -> None:
    with pytest.raises(
        InputError,
        match=r"^kl_coefficient is 0\.1, expected 0 where kl is None: set kl to an estimator$",
    ):
        Choices(estimator=CENTERED, kl_coefficient=0.1)
    with pytest.raises(
        InputError, match=r"^bounds are given and weight is None, expected a weight function: bounds clip the weight$"
    ):
        Choices(estimator=CENTERED, bounds=(partial(bounds.truncated, high=2.0),))
    with pytest.raises(InputError, match=r"^kl_coefficient is -0\.1, expected a number of 0 or more$"):
        Choices(estimator=CENTERED, kl=kl.k1, kl_coefficient=-0.1)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"scale": torch.nan}, "scale is nan, expected a number above 0"),
        ({"bias": torch.inf}, "bias is inf, expected a finite number"),
        ({"least": 1.0, "most": 0.0}, "most is 0.0, expected 1.0 or more: it is the upper bound"),
        (
            {"estimator": lambda reward, /: reward},
            "estimator takes reward by position only, expected a parameter that has a name",
        ),
        ({"estimator": lambda *columns: columns}, "estimator has no named parameter, expected named parameters: "),
        ({"least": torch.nan}, "least is nan, expected a number: a bound cannot be NaN"),
        ({"kl": lambda a, b: a - b}, "kl cannot be called, expected a function f(column, column, mask=...): "),
        ({"rejections": (bounds.truncated,)}, "rejections[0] cannot be called, expected a function f(column, column"),
        (
            {"weight": weights.token_weights, "bounds": (bounds.truncated,)},
            "bounds[0] cannot be called, expected a function f(column, mask=...): missing a required",
        ),
    ],
)
def test_choices_that_could_not_be_carried_out(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as told:
        Choices(**{"estimator": CENTERED} | choices)
    assert str(told.value).startswith(message)


def test_a_rejection_alone_is_no_tuple() -> None:
    with pytest.raises(InputError, match=r"^rejections is of type function, expected a tuple"):
        Choices(estimator=CENTERED, rejections=weights.token_weights)  # type: ignore[arg-type]  # what is refused here
