"""Columns that differ from cell to cell, in numbers that every dtype holds."""

import pytest
import torch

from rl_sentinel.core.batch import COLUMNS, EXCLUDED, Batch
from rl_sentinel.core.stored_columns import check_batch
from rl_sentinel.search.filled_batch import LOG_RATIOS, at_least, filled

#: Columns of signals that cases are given beside the reward, and hold nothing until then.
GIVEN = {"token_reward"}


def _wide() -> Batch:
    return filled([[1] * 8] * 8, reward=[float(n) for n in range(8)], group=[0, 0, 1, 1, 2, 2, 3, 3])


@pytest.mark.parametrize("name", sorted({n for n in COLUMNS if COLUMNS[n]["role"] == "signal"} - GIVEN))
def test_signals_differ(name: str) -> None:
    column = getattr(_wide(), name)
    assert len(column.unique()) > 1
    assert bool((column[1:] != column[:-1]).any())
    if COLUMNS[name]["axes"].startswith("B T"):
        assert bool((column[:, 1:] != column[:, :-1]).any())


def test_every_batch_is_sound() -> None:
    for rows in (1, 3, 7):
        for width in (1, 2, 5):
            batch = filled([[1] + [0] * (width - 1)] * rows, reward=[0.5] * rows, group=[0] * rows, length=[1] * rows)
            check_batch(batch)
            assert batch.length.tolist() == [1] * rows
    assert _wide().length.tolist() == [8] * 8


def test_numbers_are_exact_in_every_dtype() -> None:
    """Quarters, which bfloat16 holds; a policy's log-prob is below 0."""
    batch = _wide()
    for name in ("logprob", "ref_logprob", "value", "old_value", "returns", "advantage", "entropy", "logits"):
        column = getattr(batch, name)
        assert torch.equal((column * 4).round(), column * 4), name
        assert torch.equal(column.bfloat16().float(), column), name
    assert float(batch.logprob.max()) < 0


def test_ratios_straddle_every_threshold() -> None:
    """All of them, on both sides of clips at a tenth and of bounds at two, and 0 among them."""
    batch = _wide()
    ratios = sorted({round(x, 4) for x in (batch.logprob - batch.old_logprob).flatten().tolist()})
    assert ratios == pytest.approx(sorted(LOG_RATIOS), abs=1e-4)
    assert {0.0, 3.0, -1.0} <= set(LOG_RATIOS)


def test_dead_rows_say_why() -> None:
    for why in ("rejected", "padding", "truncated"):
        batch = filled([[1, 0], [0, 0]], reward=[1, 2], group=[0, 0], dead=why)
        assert batch.excluded.tolist() == [EXCLUDED["in"], EXCLUDED[why]]
    with pytest.raises(KeyError):
        filled([[1]], reward=[1], group=[0], dead="lost")


def test_turns_never_fall_and_do_not_follow_the_mask() -> None:
    batch = filled([[1, 0, 1, 1], [1, 1, 0, 1]], reward=[1, 0], group=[0, 0])
    assert batch.turn.tolist() == [[0, 0, 1, 1], [0, 1, 1, 2]]


def test_what_is_given_stands() -> None:
    own = torch.tensor([[7.0, 8.0]])
    assert filled([[1, 1]], reward=[1], group=[0], value=own).value is own


def test_a_sum_of_squares_allows_the_probability() -> None:
    logprob = torch.tensor([0.0, -0.125, -0.5, -1.0, -3.0])
    found, square = at_least(logprob), (2 * logprob).exp()
    assert torch.equal((found * 8).round(), found * 8)
    assert bool((found >= square).all())
    assert bool((found - square < 0.125).all())
    assert found[0].item() == 1.0
