"""What is refused, and in which words."""

import pytest
import torch

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.requirements import (
    COUNT,
    FRACTION,
    LIMIT,
    POSITIVE,
    require_finite,
    require_instance,
    require_logprobs,
    require_range,
    require_span,
)
from rl_sentinel.signal.reward import clipped

FACTS = torch.ones(2).bool()


def test_numbers_where_they_count() -> None:
    values = torch.tensor([[0.0, torch.inf], [torch.nan, 0.0]])
    with pytest.raises(InputError, match=r"^value\[1, 0\] is nan, expected a finite number: it is trained$"):
        require_finite("value", values, where=torch.tensor([[True, False], [True, True]]), why="it is trained")


def test_open_ranges() -> None:
    require_range("threshold", torch.inf, LIMIT)
    for number, span, message in (
        (float("nan"), FRACTION, r"^x is nan, expected a number of 0 or more and at most 1$"),
        (0.0, POSITIVE, r"^x is 0\.0, expected a number above 0$"),
        (torch.inf, POSITIVE, r"^x is inf, expected a finite number above 0$"),
        (1e30, COUNT, r"^x is 1e\+30, expected a whole number of 0 or more and below 2\*\*63$"),
    ):
        with pytest.raises(InputError, match=message):
            require_range("x", number, span)


def test_impossible_numbers() -> None:
    require_logprobs(logprob=torch.tensor([0.25, 9.0]), where=torch.tensor([True, False]))
    with pytest.raises(InputError, match=r"^old\[1\] is 0\.75, expected at most 0: it is the log of a probability"):
        require_logprobs(new=torch.zeros(2), old=torch.tensor([0.25, 0.75]), where=FACTS)
    require_span("x", torch.tensor([1.005, torch.nan]), where=FACTS, span=(0.0, 1.0), slack=0.01, why="it is a share")
    with pytest.raises(InputError, match=r"^x\[1\] is 1\.25, expected from 0 to 1: it is a share$"):
        require_span("x", torch.tensor([0.0, 1.25]), where=FACTS, span=(0.0, 1.0), why="it is a share")


def test_another_class() -> None:
    require_instance("mode", "token-mean", str, "a word")
    with pytest.raises(InputError, match=r"^aggregation is 'token-mean', expected a dict: a mode$"):
        require_instance("aggregation", "token-mean", dict, "a mode")


def test_a_tensor_without_values_is_refused() -> None:
    with pytest.raises(InputError, match=r"^reward is on the meta device, expected a device with values"):
        clipped(torch.ones(2, device="meta"), live=torch.tensor([True, True]), least=0.0, most=1.0)
