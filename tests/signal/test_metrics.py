"""Metrics by hand, at their edges."""

import pytest
import torch

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal import metrics

NOTHING = torch.zeros(2, 3).bool()
ANY = torch.full((2, 3), torch.nan)


def test_statistics_by_hand() -> None:
    """Of 1, 2 and 6: mean 3, deviation root of 7; what is masked is not looked at."""
    found = metrics.statistics(torch.tensor([1.0, torch.nan, 2.0, 6.0]), mask=torch.tensor([True, False, True, True]))
    assert (found.mean.item(), found.least.item(), found.most.item(), found.size) == (3.0, 1.0, 6.0, 3)
    assert found.deviation.item() == pytest.approx(7**0.5)


def test_a_rejected_sequence_counts_once() -> None:
    new = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    mask = torch.tensor([[True, False, False], [True, True, True]])
    numbers = {"clip_low": 0.2, "clip_high": 0.2}
    found = metrics.clip_fraction(new, torch.zeros(2, 3), torch.ones(2, 3), mask=mask, **numbers)
    assert (found.tokens.item(), found.sequences.item()) == (0.25, 0.5)


def test_nothing_is_0() -> None:
    """Where nothing is trained every metric is 0, and finite."""
    columns = {"mask": NOTHING}
    found = [*metrics.statistics(ANY, **columns)[:4], *metrics.mean_kl(ANY, ANY, **columns)]
    found += [metrics.effective_sample_size(ANY, **columns), metrics.explained_variance(ANY, ANY, **columns)]
    found += [*metrics.clip_fraction(ANY, ANY, ANY, **columns, clip_low=0.2, clip_high=0.2)]
    rows, dead = torch.full((2,), torch.nan), torch.zeros(2).bool()
    found += [metrics.dead_group_fraction(rows, group=torch.zeros(2).long(), live=dead), metrics.share(dead, mask=dead)]
    assert [x.item() for x in found] == [0.0] * len(found)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_unit_of_weights_does_not_matter(scale: float) -> None:
    mask = torch.ones(3).bool()
    assert metrics.effective_sample_size(torch.full((3,), scale), mask=mask).item() == pytest.approx(1.0)
    one = torch.tensor([0.0, scale, 0.0])
    assert metrics.effective_sample_size(one, mask=mask).item() == pytest.approx(1 / 3)


def test_a_critic_that_knows_nothing_explains_nothing() -> None:
    """A constant one 0, a right one 1, and of constant returns there is nothing to explain."""
    returns, mask = torch.tensor([[1.0, 2.0, 4.0]]), torch.ones(1, 3).bool()
    for value, expected in ((torch.ones(1, 3), 0.0), (returns, 1.0), (returns - 7, 1.0)):
        assert metrics.explained_variance(value, returns, mask=mask).item() == pytest.approx(expected, abs=1e-6)
    assert metrics.explained_variance(returns, torch.full((1, 3), 0.1), mask=mask).item() == 0.0


def test_a_number_that_is_none_is_named() -> None:
    with pytest.raises(InputError, match=r"^values\[1\] is nan, expected a finite number: the mask counts this"):
        metrics.statistics(torch.tensor([1.0, torch.nan]), mask=torch.ones(2).bool())


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(InputError, match=r"^weight\[1\] is -1.0, expected 0 or more: it is a ratio"):
        metrics.effective_sample_size(torch.tensor([1.0, -1.0]), mask=torch.tensor([True, True]))
    untrained = metrics.effective_sample_size(torch.tensor([1.0, -1.0]), mask=torch.tensor([True, False]))
    assert untrained == 1
