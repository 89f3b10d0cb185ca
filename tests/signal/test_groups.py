"""Group statistics, by hand: live rows only, any labels, constant groups exactly 0."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.advantage import grpo
from rl_sentinel.signal.groups import centered, deviations, group_counts, group_maxima, group_sums, moments, places

REWARD = torch.tensor([1.0, 10.0, 3.0, torch.nan, 20.0])
GROUP = torch.tensor([9, -4, 9, 9, -4])
LIVE = torch.tensor([True, True, True, False, True])


def test_sums_counts_and_maxima() -> None:
    assert group_sums(REWARD, group=GROUP, live=LIVE).tolist() == [4.0, 30.0, 4.0, 4.0, 30.0]
    assert group_counts(group=GROUP, live=LIVE).tolist() == [2, 2, 2, 2, 2]
    assert group_maxima(REWARD, group=GROUP, live=LIVE).tolist() == [3.0, 20.0, 3.0, 3.0, 20.0]


def test_centered() -> None:
    """Means are 2 and 15; a dead row is exactly 0."""
    assert centered(REWARD, group=GROUP, live=LIVE).tolist() == [-1.0, -5.0, 1.0, 0.0, 5.0]


def test_weighted() -> None:
    """Weights 3 and 1 put the mean at 1.5."""
    weight = torch.tensor([3.0, 1.0, 1.0, 7.0, 1.0])
    assert centered(REWARD, group=GROUP, live=LIVE, weight=weight).tolist() == [-0.5, -5.0, 1.5, 0.0, 5.0]


def test_deviations() -> None:
    """Of 1 and 3, and of 10 and 20, with n - 1."""
    expected = torch.tensor([2.0, 50.0, 2.0, 2.0, 50.0]).sqrt()
    assert torch.equal(deviations(REWARD, group=GROUP, live=LIVE), expected)


@pytest.mark.parametrize("label", [(0, 1), (1, 5), (-3, 1), (-1, 4), (2**63 - 1, -(2**63)), (2**62, 2**62 + 4)])
def test_any_labels(label: tuple[int, int]) -> None:
    group = torch.tensor(label)[torch.tensor([0, 1, 0, 0, 1])]
    assert group_sums(REWARD, group=group, live=LIVE).tolist() == [4.0, 30.0, 4.0, 4.0, 30.0]
    assert centered(REWARD, group=group, live=LIVE).tolist() == [-1.0, -5.0, 1.0, 0.0, 5.0]
    assert sorted(set(places(group).tolist())) == [0, 1]


def test_weights_of_nothing() -> None:
    """A row of weight 0 is compared with the others' mean; a group without weight has none, and none is negative."""
    reward, group, live = torch.tensor([1.0, 5.0, 3.0]), torch.tensor([0, 0, 0]), torch.ones(3).bool()
    found = centered(reward, group=group, live=live, weight=torch.tensor([1.0, 0.0, 1.0]))
    assert found.tolist() == [-1.0, 3.0, 1.0]
    with pytest.raises(InputError, match=r"^weight\[1\] is -1\.0, expected 0 or more: it weights a live response$"):
        centered(reward, group=group, live=live, weight=torch.tensor([1.0, -1.0, 1.0]))
    with pytest.raises(
        InputError, match=r"^weight\[0\] and all weights of its group are 0, expected one above 0 for the mean"
    ):
        centered(reward, group=torch.tensor([4, 9, 4]), live=live, weight=torch.tensor([0.0, 1.0, 0.0]))


def test_no_rows() -> None:
    nothing = torch.zeros(0)
    assert centered(nothing, group=nothing.long(), live=nothing.bool()).tolist() == []
    assert centered(REWARD, group=GROUP, live=torch.zeros(5, dtype=torch.bool)).tolist() == [0.0] * 5


@given(st.floats(-(2.0**99), 2.0**99, width=32), st.integers(1, 40))
def test_constant_group_is_exactly_zero(reward: float, count: int) -> None:
    same = torch.full((count,), reward)
    group, live = torch.zeros(count, dtype=torch.int64), torch.ones(count, dtype=torch.bool)
    assert not centered(same, group=group, live=live).any()
    assert not deviations(same, group=group, live=live).any()


def test_low_precision_is_widened() -> None:
    """Statistics of bfloat16 rewards are taken in float32."""
    reward = torch.tensor([1.0] * 300 + [0.0] * 300).bfloat16()
    group, live = torch.zeros(600, dtype=torch.int64), torch.ones(600, dtype=torch.bool)
    relative = centered(reward, group=group, live=live)
    assert relative.dtype == torch.float32
    assert relative[0].item() == 0.5


def test_missing_reward_is_refused() -> None:
    message = (
        r"^reward\[3\] is nan, expected a finite number: "
        r"a row with a trained token needs a reward \(mask the row to leave it out\)$"
    )
    with pytest.raises(ValueError, match=message):
        centered(REWARD, group=GROUP, live=torch.ones(5, dtype=torch.bool))


def test_narrow_numbers_are_added_wide() -> None:
    """1 can be added to a sum in bfloat16 more than 256 times."""
    ones = torch.ones(1000, dtype=torch.bfloat16)
    found = group_sums(ones, group=torch.zeros(1000, dtype=torch.long), live=torch.ones(1000, dtype=torch.bool))
    assert (found.dtype, found[0].item()) == (torch.bfloat16, 1000.0)


def test_standardized_rewards_can_be_followed() -> None:
    reward = torch.tensor([1.0, 0.0, 0.5, 3.0], dtype=torch.float64, requires_grad=True)
    group, live = torch.tensor([0, 0, 0, 1]), torch.ones(4, dtype=torch.bool)
    assert torch.autograd.gradcheck(lambda r: moments(r, group=group, live=live)[0], (reward,))
    followed = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: moments(r, group=group[:3], live=live[:3])[1], (followed,))


@pytest.mark.parametrize("size", [1e-25, 1.0, 1e19, 1e30])
def test_deviations_of_any_size(size: float) -> None:
    """Squares that overflow, or vanish, in the values' own type: the deviation is that of 1, 0, 1, 0 at any size."""
    found = deviations(
        torch.tensor([1.0, 0.0, 1.0, 0.0]) * size, group=torch.zeros(4).long(), live=torch.ones(4).bool()
    )
    assert (found / size).tolist() == pytest.approx([3**-0.5] * 4)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
def test_gradient_of_a_constant_group(epsilon: float) -> None:
    reward = torch.ones(3, requires_grad=True)
    found = grpo.advantages(
        reward, group=torch.zeros(3).long(), live=torch.ones(3).bool(), standardize=True, epsilon=epsilon
    )
    (gradient,) = torch.autograd.grad(found[0], reward)
    share = 1 / epsilon if epsilon else 0.0
    assert gradient.tolist() == pytest.approx([share * 2 / 3, -share / 3, -share / 3], rel=1e-4)


@pytest.mark.parametrize("size", [2.0**-120, 2.0**127])
def test_means_of_any_size(size: float) -> None:
    """Sums and distances that do not fit the values' own type: what fits comes out, as of numbers near 1."""
    plain, group, live = torch.tensor([-1.0, 1.0, 0.0, -1.0, -0.25]), torch.zeros(5).long(), torch.ones(5).bool()
    for weight in (None, torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])):
        expected = centered(plain, group=group, live=live, weight=weight)
        assert (centered(plain * size, group=group, live=live, weight=weight) / size).tolist() == expected.tolist()


@pytest.mark.parametrize(("dtype", "largest"), [(torch.float32, 3e38), (torch.float64, 1.5e308)])
def test_too_far_apart_is_refused(dtype: torch.dtype, largest: float) -> None:
    reward = torch.tensor([largest, -largest, largest, largest], dtype=dtype)
    group, live = torch.zeros(4).long(), torch.ones(4).bool()
    message = (
        rf"^reward\[[01]\] is .*, expected a value nearer to the rest of its group: .* {str(dtype)[6:]} \(scale the "
    )
    for function in (centered, moments):
        with pytest.raises(ValueError, match=message):
            function(reward, group=group, live=live)
    assert centered(reward, group=torch.arange(4), live=live).tolist() == [0.0] * 4


@pytest.mark.parametrize(("weight", "words"), [(float("nan"), "is nan"), (-1.0, "is -1.0, expected 0 or more")])
def test_a_wrong_weight_of_a_live_response_is_refused(weight: float, words: str) -> None:
    reward, group, weights = torch.tensor([1.0, 0.0]), torch.zeros(2).long(), torch.tensor([weight, 1.0])
    with pytest.raises(InputError, match=rf"^weight\[0\] {words}"):
        centered(reward, group=group, live=torch.tensor([True, True]), weight=weights)
    assert centered(reward, group=group, live=torch.tensor([False, True]), weight=weights).tolist() == [0, 0]
