"""Measures of a whole batch, by hand."""

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.measures import is_measure, measured_batch

MASK = torch.tensor([[True, True], [True, False], [False, False]])
READS = frozenset({"reward", "group", "value", "returns", "logprob", "old_logprob", "mask"})


def test_dead_groups() -> None:
    reward, group = torch.tensor([1.0, 0.0, 0.0, 1.0, 5.0]), torch.tensor([4, 4, 4, 5, 5])
    live = torch.tensor([[True], [True], [True], [True], [False]])
    found = measured_batch("dead_group_fraction", batch_of(live, reward=reward, group=group), READS, "", {})
    assert {n: x.item() for n, x in found.items()} == {
        "prompts of live rows": 0.5,
        "rows of such prompts among live rows": 0.25,
        "prompts of all rows": 0.0,
        "rows of such prompts among all rows": 0.0,
    }


def test_no_live_row() -> None:
    assert measured_batch("dead_group_fraction", batch_of(torch.zeros(2, 1)), READS, "live", {}) == {}


def test_sample_size() -> None:
    """Ratios 1, 1 and 2 of three tokens: 16 by 18; the other way round 1, 1 and a half: 6.25 by 6.75."""
    logprob = torch.tensor([[0.0, 0.0], [2.0, 9.0], [9.0, 9.0]])
    logprob[1, 0] = torch.tensor(2.0).log()
    found = measured_batch("effective_sample_size", batch_of(MASK, logprob=logprob), READS, "live", {})
    assert {n: x.item() for n, x in found.items()} == pytest.approx(
        {
            "ratios of logprob to old_logprob over trained tokens": 16 / 18,
            "ratios of old_logprob to logprob over trained tokens": 6.25 / 6.75,
        }
    )


def test_sample_size_of_cut_ratios() -> None:
    """Of ratios 1, 1 and 2 the largest is cut away: two of three are left; where all are cut, none is."""
    logprob = torch.zeros(3, 2)
    logprob[1, 0] = torch.tensor(2.0).log()
    batch, name = batch_of(MASK, logprob=logprob), "ratios of logprob to old_logprob over trained tokens"
    found = [measured_batch("effective_sample_size", batch, READS, "live", {"high": high})[name] for high in (1.5, 0.5)]
    assert [x.item() for x in found] == pytest.approx([4 / 6, 0.0])


def test_explained() -> None:
    """Returns 1, 2, 4 less values of half of them: a quarter of the variance is left."""
    returns = torch.tensor([[1.0, 2.0], [4.0, 9.0], [9.0, 9.0]])
    batch = batch_of(MASK, returns=returns, value=returns / 2)
    found = measured_batch("explained_variance", batch, READS, "", {})
    assert found["of a variance, 0 where it is not defined"].item() == 0.75
    assert found["of a variance and 1e-05"].item() == pytest.approx(0.75, abs=1e-5)


def test_nothing_to_explain() -> None:
    found = measured_batch("explained_variance", batch_of(MASK, value=torch.arange(6.0).view(3, 2)), READS, "", {})
    assert found["of a variance, 0 where it is not defined"].item() == 0.0
    assert found["of a variance and 1e-05"].item() == pytest.approx(1 - 1e5)
    one = measured_batch("explained_variance", batch_of(MASK[2:], value=torch.ones(1, 2)), READS, "", {})
    assert {n: x.item() for n, x in one.items()} == {"of a variance, 0 where it is not defined": 0.0}


@pytest.mark.parametrize("quantity", ["dead_group_fraction", "effective_sample_size", "explained_variance"])
def test_columns_are_read(quantity: str) -> None:
    assert is_measure(quantity, READS)
    assert not is_measure(quantity, frozenset({"reward", "value", "logprob", "mask"}))
    assert not is_measure("clip_fraction", READS)


def test_counts() -> None:
    """Of two live rows one is rewarded, of three rows two are; two rows train three tokens."""
    batch = batch_of(MASK, reward=torch.tensor([1.0, 0.0, 2.0]))
    found = {name: measured_batch(name, batch, READS, "", {}) for name in ("rewarded_rows", "unrewarded_rows")}
    assert {name: [x.item() for x in counts.values()] for name, counts in found.items()} == {
        "rewarded_rows": [1.0, 2.0],
        "unrewarded_rows": [1.0, 1.0],
    }
    assert measured_batch("trained_tokens", batch, READS, "", {})["trained tokens"].item() == 3.0
