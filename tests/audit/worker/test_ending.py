"""Where an answer holds what was compared, and what a script says of it."""

from types import SimpleNamespace

import torch

from rl_sentinel.audit.worker.ending import Ending, place

ONE, TWO = torch.tensor([1.0]), torch.tensor([2.0])


def test_place() -> None:
    """In tuples, tables and numbers, by the numbers themselves; nowhere is an empty word."""
    table = SimpleNamespace(batch={"advantages": TWO, "mask": ONE})
    assert place("x", TWO, TWO) == "x"
    assert place("x", (ONE, TWO), TWO) == "x[1]"
    assert place("x", (table, {}), TWO) == "x[0].batch['advantages']"
    assert place("x", (ONE, {"kl": 0.5}), torch.tensor(0.5)) == "torch.tensor(float(x[1]['kl']))"
    assert place("x", (ONE, "words", None), TWO) == ""
    assert place("x", [[[[TWO]]]], TWO) == ""


def test_what_a_law_made_of_several_is_a_remark() -> None:
    """A number that stands in no answer is told as it was found, and nothing is compared."""
    lines = Ending("SPL003", "loss", ONE, TWO, None, 0.0).lines("", "")
    assert lines == ["", "# SPL003 made of these, when it was found, of loss: expected [1.0], got [2.0]"]


def test_where_it_counts() -> None:
    """Positions that do not count are left out of the comparison; a baseline that stands in an answer is named."""
    where = torch.tensor([[True], [False]])
    lines = Ending("MSK001", "advantage", torch.ones(2, 2), torch.zeros(2, 2), where, 0.5).lines("was[0]", "is[0]")
    assert "expected, got = was[0], is[0]" in lines
    assert lines[3].endswith("& torch.tensor([[True, True], [False, False]])")
