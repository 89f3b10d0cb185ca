"""OPSM and M2PO by hand."""

import pytest
import torch

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.align import spread
from rl_sentinel.signal.correction.trust import off_policy_sequences_kept, rejected_fraction, second_moment_kept
from rl_sentinel.signal.segments import Segments

ONE = torch.ones(1, 3).bool()


def test_signs_mixed_within_a_response() -> None:
    """A mean of -1/6 rejects the whole response, whose loss is then 0; slime's upstream pull request 1917 has these."""
    new, old, advantage = torch.zeros(1, 3), torch.ones(1, 3), torch.tensor([[-0.5, 0.25, -0.25]])
    keep = off_policy_sequences_kept(new, old, advantage, mask=ONE, threshold=0.1)
    assert keep.tolist() == [False]
    mask = ONE & keep.unsqueeze(1)
    assert mask.tolist() == [[False, False, False]]
    weighed = torch.where(mask, -(new - old).exp() * advantage, torch.zeros_like(new))
    assert weighed.sum().item() == 0.0
    assert rejected_fraction(keep, live=torch.tensor([True]), denominator=1.0).item() == 1.0


def test_both_must_hold() -> None:
    mask = torch.tensor([[1, 1], [1, 1], [1, 0], [1, 0], [0, 0]]).bool()
    advantage = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [-1.0, 9.0], [0.0, -9.0], [-1.0, torch.nan]])
    new = torch.tensor([[-9.0, -9.0], [-0.25, 0.05], [-0.2, 99.0], [-9.0, 0.0], [torch.nan, 0.0]])
    kept = off_policy_sequences_kept(new, torch.zeros(5, 2), advantage, mask=mask, threshold=0.15)
    assert kept.tolist() == [True, True, False, True, False]


def test_one_advantage_per_response() -> None:
    new, row = torch.tensor([[-1.0, -1.0], [-1.0, 0.0]]), torch.tensor([-0.5, 0.5])
    mask, old = torch.ones(2, 2).bool(), torch.zeros(2, 2)
    wide = off_policy_sequences_kept(new, old, spread(row, mask=mask), mask=mask, threshold=0.1)
    assert off_policy_sequences_kept(new, old, row, mask=mask, threshold=0.1).tolist() == wide.tolist() == [False, True]


def test_packed_advantages_are_of_tokens() -> None:
    new, mask = torch.tensor([-1.0, -1.0]), Segments(torch.ones(2).bool(), torch.tensor([2, 0]))
    advantage = torch.tensor([-0.5, 0.75])
    assert off_policy_sequences_kept(new, 0 * new, advantage, mask=mask, threshold=0.1).tolist() == [True, False]
    one = Segments(torch.ones(2).bool(), torch.tensor([2]))
    with pytest.raises(InputError, match=r"^advantage has shape \[1\], expected \[2\], as in mask$"):
        off_policy_sequences_kept(new, 0 * new, advantage[:1], mask=one, threshold=0.1)


def test_fraction_counts_responses_once() -> None:
    keep, live = torch.tensor([False, True, False, True]), torch.tensor([True, True, False, True])
    whole = rejected_fraction(keep, live=live, denominator=3.0)
    parts = [rejected_fraction(keep[p], live=live[p], denominator=3.0) for p in (slice(0, 1), slice(1, 4))]
    assert whole.item() == pytest.approx(1 / 3)
    assert sum(part.item() for part in parts) == pytest.approx(whole.item())


def test_second_moment() -> None:
    """Squares 0, 0.01, 1 and 4: means of the first two and three are 0.005 and 0.3367."""
    new, mask = (
        torch.tensor([[2.0, -0.1], [0.0, 1.0], [50.0, torch.nan]]),
        torch.tensor([[1, 1], [1, 1], [0, 0]]).bool(),
    )
    old = torch.zeros(3, 2)
    assert second_moment_kept(new, old, mask=mask, threshold=2.0).tolist() == [[1, 1], [1, 1], [0, 0]]
    assert second_moment_kept(new, old, mask=mask, threshold=0.34).tolist() == [[0, 1], [1, 1], [0, 0]]
    assert second_moment_kept(new, old, mask=mask, threshold=0.33).tolist() == [[0, 1], [1, 0], [0, 0]]
    assert second_moment_kept(new, old, mask=mask, threshold=0.0).tolist() == [[0, 0], [1, 0], [0, 0]]
    assert second_moment_kept(new, old, mask=torch.zeros_like(mask), threshold=1.0).tolist() == [[0, 0]] * 3


def test_equals_go_together() -> None:
    """Two tokens as far: both or none, so that no order of rows decides."""
    new = torch.tensor([[0.0, 1.0, -1.0]])
    assert second_moment_kept(new, torch.zeros(1, 3), mask=ONE, threshold=0.6).tolist() == [[True, False, False]]
    assert second_moment_kept(new, torch.zeros(1, 3), mask=ONE, threshold=0.7).tolist() == [[True, True, True]]


def test_refused() -> None:
    zero = torch.zeros(1, 3)
    with pytest.raises(InputError, match=r"^advantage\[0, 0\] is nan, expected a finite number: a trained token"):
        off_policy_sequences_kept(zero, zero, zero + torch.nan, mask=ONE, threshold=0.1)
    with pytest.raises(InputError, match=r"^advantage\[0\] is inf"):
        off_policy_sequences_kept(zero, zero, torch.tensor([torch.inf]), mask=ONE, threshold=0.1)
    with pytest.raises(InputError, match=r"^threshold is -1\.0, expected a number of 0 or more$"):
        second_moment_kept(zero, zero, mask=ONE, threshold=-1.0)
    with pytest.raises(InputError, match=r"^keep has dtype float32, expected bool"):
        rejected_fraction(torch.ones(1), live=torch.tensor([True]), denominator=1.0)
    with pytest.raises(InputError, match=r"^denominator is 0\.0, expected a number above 0$"):
        rejected_fraction(torch.tensor([True]), live=torch.tensor([True]), denominator=0.0)
