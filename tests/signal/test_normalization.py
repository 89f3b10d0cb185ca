"""Normalization by hand, its populations, and what it refuses."""

from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.advantage import gdpo, grpo
from rl_sentinel.signal.advantage import reinforce_plus_plus as plus
from rl_sentinel.signal.advantage import reinforce_plus_plus_baseline as baseline
from rl_sentinel.signal.normalization import Normalization, Over, normalized
from rl_sentinel.signal.reward import suppressed

REWARD = torch.tensor([1.0, 10.0, 3.0, torch.nan, 18.0])
GROUP = torch.tensor([7, -2, 7, 7, -2])
LIVE = torch.tensor([True, True, True, False, True])


def _found(
    mean: Over, deviation: Over, *, left: bool = False, biased: bool = False, epsilon: float = 0.0
) -> list[float]:
    by = Normalization(mean=mean, deviation=deviation, leave_one_out=left, biased=biased, epsilon=epsilon)
    found: list[float] = normalized(REWARD, group=GROUP, live=LIVE, by=by).tolist()
    return found


def test_means() -> None:
    """Of all live rows 8, of the groups 2 and 14; of the others of a pair, the other."""
    assert _found("none", "none") == [1.0, 10.0, 3.0, 0.0, 18.0]
    assert _found("batch", "none") == [-7.0, 2.0, -5.0, 0.0, 10.0]
    assert _found("group", "none") == [-1.0, -4.0, 1.0, 0.0, 4.0]
    assert _found("group", "none", left=True) == [-2.0, -8.0, 2.0, 0.0, 8.0]
    assert _found("batch", "none", left=True) == pytest.approx([4 / 3 * x for x in (-7.0, 2.0, -5.0, 0.0, 10.0)])


def test_deviations() -> None:
    assert _found("group", "group", biased=True) == pytest.approx([-1.0, -1.0, 1.0, 0.0, 1.0])
    assert _found("group", "group") == pytest.approx([-(0.5**0.5), -(0.5**0.5), 0.5**0.5, 0.0, 0.5**0.5])
    batch = (2 * (1 + 16) / 3) ** 0.5
    assert _found("group", "batch") == pytest.approx([x / batch for x in (-1.0, -4.0, 1.0, 0.0, 4.0)])
    wide = ((49 + 4 + 25 + 100) / 4) ** 0.5 + 0.5
    assert _found("batch", "batch", biased=True, epsilon=0.5) == pytest.approx(
        [x / wide for x in (-7.0, 2.0, -5.0, 0.0, 10.0)]
    )
    assert _found("batch", "group", biased=True) == pytest.approx([-7.0, 0.5, -5.0, 0.0, 2.5])


@pytest.mark.parametrize("mean", ["batch", "group", "none"])
@pytest.mark.parametrize("deviation", ["batch", "group"])
def test_constant_is_exactly_zero(mean: Over, deviation: Over) -> None:
    by = Normalization(mean=mean, deviation=deviation, leave_one_out=False, biased=False, epsilon=1e-9)
    same, nobody = torch.full((7,), 100.1), torch.zeros(7, dtype=torch.int64)
    assert not normalized(same, group=nobody, live=torch.ones(7).bool(), by=by).any()
    if deviation == "group":
        pair = torch.tensor([0.3, 0.3, 9.0])
        assert not normalized(pair, group=torch.tensor([0, 0, 1]), live=torch.ones(3).bool(), by=by).any()


def test_suppression_comes_first() -> None:
    """A reward that is void moves nobody, whether its row is left out of the mean or counts as 0 in it."""
    live, scored, one = torch.ones(2).bool(), torch.tensor([True, False]), torch.zeros(2).long()
    by = Normalization(mean="batch", deviation="none", leave_one_out=False, biased=False, epsilon=0.0)

    def counted(void: float) -> list[float]:
        kept = suppressed(torch.tensor([1.0, void]), live=live, scored=scored)
        found: list[float] = normalized(kept, group=one, live=live, by=by).tolist()
        return found

    def left_out(void: float) -> list[float]:
        found: list[float] = normalized(torch.tensor([1.0, void]), group=one, live=live & scored, by=by).tolist()
        return found

    assert counted(1.0) == counted(100.0) == [0.5, -0.5]
    assert left_out(1.0) == left_out(100.0) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mean": "row"}, "mean is 'row', expected one of batch, group, none"),
        ({"deviation": ""}, "deviation is '', expected one of batch, group, none"),
        (
            {"mean": "none", "leave_one_out": True},
            "leave_one_out is True, expected False with mean 'none': there is no mean to leave a row out of",
        ),
        ({"epsilon": -1.0}, "epsilon is -1.0, expected a number of 0 or more"),
    ],
)
def test_nonsense(changed: dict[str, Any], message: str) -> None:
    sound: dict[str, Any] = {
        "mean": "group",
        "deviation": "none",
        "leave_one_out": False,
        "biased": False,
        "epsilon": 0.0,
    }
    with pytest.raises(InputError) as told:
        Normalization(**sound | changed)
    assert str(told.value) == message


def test_bad_rows() -> None:
    by = Normalization(mean="group", deviation="none", leave_one_out=False, biased=False, epsilon=0.0)
    with pytest.raises(InputError, match=r"^reward\[3\] is nan"):
        normalized(REWARD, group=GROUP, live=torch.ones(5).bool(), by=by)


def test_the_deviation_leaves_no_row_out() -> None:
    """1 beside 0 stands 1 from the mean of the other, and half a unit from that of both: by the root of a half."""
    by = Normalization(mean="group", deviation="group", leave_one_out=True, biased=False, epsilon=0.0)
    found = normalized(torch.tensor([1.0, 0.0]), group=torch.tensor([0, 0]), live=torch.ones(2).bool(), by=by)
    torch.testing.assert_close(found, torch.tensor([2.0**0.5, -(2.0**0.5)]))


def test_a_deviation_that_vanishes_divides_nothing() -> None:
    """Squares of rewards as small as these are 0 in float64: the group carries no signal, to any estimator alike."""
    reward, told = (
        torch.tensor([1e-200, 0.0], dtype=torch.float64),
        {"group": torch.tensor([0, 0]), "live": torch.ones(2).bool()},
    )
    by = Normalization(mean="group", deviation="group", leave_one_out=False, biased=False, epsilon=0.0)
    found = [
        normalized(reward, **told, by=by),
        grpo.advantages(reward, **told, standardize=True, epsilon=0.0),
        baseline.advantages(reward, **told, epsilon=0.0),
        gdpo.advantages(reward.unsqueeze(1), **told, weight=torch.ones(1, dtype=torch.float64), epsilon=0.0),
        plus.advantages(reward.unsqueeze(1), mask=torch.ones(2, 1).bool(), discount=1.0, epsilon=0.0).squeeze(1),
    ]
    assert [one.tolist() for one in found] == [[0.0, 0.0]] * 5
