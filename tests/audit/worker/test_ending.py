"""What a script says of what was compared."""

import torch

from rl_sentinel.audit.worker.ending import Ending

ONE, TWO = torch.tensor([1.0]), torch.tensor([2.0])


def test_what_a_law_made_of_several_is_a_remark() -> None:
    """A number that stands in no answer is told as it was found, and nothing is compared."""
    lines = Ending("SPL003", "loss", ONE, TWO, None, 0.0).lines("", "")
    assert lines == ["", 'print("SPL003: of these, when it was found, loss expected [1.0], got [2.0]")']
    told = Ending("SPL003", "loss", ONE, TWO, None, 0.0, 'the batch "cut" in two').lines("", "")[1]
    assert told.endswith('got [2.0]; the batch \\"cut\\" in two")')


def test_where_it_counts() -> None:
    """Positions that do not count are left out of the comparison; a baseline that stands in an answer is named."""
    where = torch.tensor([[True], [False]])
    lines = Ending("MSK001", "advantage", torch.ones(2, 2), torch.zeros(2, 2), where, 0.5).lines("was[0]", "is[0]")
    assert "expected, got = was[0], is[0]" in lines
    assert lines[3].endswith("& torch.tensor([[True, True], [False, False]])")
