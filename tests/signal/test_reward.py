"""Rewards shifted, clipped, suppressed and lowered for length, by hand."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.reward import clipped, overlong_penalty, rescaled, suppressed

REWARD = torch.tensor([1.0, -3.0, torch.nan, 5.0])
LIVE = torch.tensor([True, True, False, True])


def test_rescaled() -> None:
    """The bias comes before the scale; a dead row is 0 whatever stood there."""
    assert rescaled(REWARD, live=LIVE, bias=1.0, scale=0.5).tolist() == [1.0, -1.0, 0.0, 3.0]


def test_clipped() -> None:
    """On both sides; bounds above 0 do not lift a dead row."""
    assert clipped(REWARD, live=LIVE, least=-2.0, most=4.0).tolist() == [1.0, -2.0, 0.0, 4.0]
    assert clipped(REWARD, live=LIVE, least=2.0, most=4.0).tolist() == [2.0, 2.0, 0.0, 4.0]


def test_suppressed() -> None:
    scored = torch.tensor([True, False, True, True])
    odd = torch.where(scored, REWARD, torch.full_like(REWARD, torch.inf))
    assert suppressed(odd, live=LIVE, scored=scored).tolist() == [1.0, 0.0, 0.0, 5.0]


def test_overlong_penalty() -> None:
    """From 6 of 10 tokens it grows by a quarter each; it ends at the whole."""
    length = torch.tensor([0, 6, 7, 10, 30])
    assert overlong_penalty(length, limit=10, buffer=4, factor=2.0).tolist() == [0.0, 0.0, -0.5, -2.0, -2.0]


REFUSED: dict[str, Callable[[], Tensor]] = {
    (
        "reward[2] is nan, expected a finite number: a row with a trained token needs a finite value (mask the row to "
        "leave it out)"
    ): lambda: rescaled(REWARD, live=torch.ones(4).bool(), bias=0.0, scale=1.0),
    "scale is -1.0, expected a number above 0": lambda: rescaled(REWARD, live=LIVE, bias=0.0, scale=-1.0),
    "most is -1.0, expected 1.0 or more: it is the upper bound, and least the lower one": lambda: clipped(
        REWARD, live=LIVE, least=1.0, most=-1.0
    ),
    (
        "scored has dtype float32, expected bool: a mask is True or False; compare numbers to make a mask, as in "
        "scored > 0"
    ): (lambda: suppressed(REWARD, live=LIVE, scored=LIVE.float())),
    "length[1] is -1, expected 0 tokens or more": lambda: overlong_penalty(
        torch.tensor([3, -1]), limit=4, buffer=2, factor=1.0
    ),
    "buffer is 5, expected a whole number of 1 or more and at most 4": lambda: overlong_penalty(
        torch.tensor([3]), limit=4, buffer=5, factor=1.0
    ),
    "factor is -1.0, expected a number of 0 or more": lambda: overlong_penalty(
        torch.tensor([3]), limit=4, buffer=2, factor=-1.0
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    with pytest.raises(InputError) as told:
        REFUSED[message]()
    assert str(told.value) == message
