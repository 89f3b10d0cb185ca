"""What a signature alone asks of a function: which calls there are, and what counts as the same answer."""

import pytest
import torch

from frameworks.reference_specimen import TARGET
from rl_sentinel.frameworks.reference.held import APART, Held, boundaries

SIGNAL = "rl_sentinel.signal"

#: Way of calling -> functions that are called so, and functions that are not.
WAYS = {
    "sound off the mask": ({"groups.group_counts", "reduce.row_sums"}, {"groups.places"}),
    "sound packed": ({"reduce.row_sums", "staleness.staleness"}, {"groups.group_counts"}),
    "sound, of rows": ({"staleness.staleness", "metrics.share"}, {"reduce.row_sums"}),
    "sound for the log": ({"staleness.staleness", "metrics.statistics"}, {"reduce.row_sums"}),
    "other rows": ({"reduce.row_sums"}, {"groups.places"}),
    "other kinds": ({"groups.places", "reduce.row_sums"}, set()),
    "no numbers": ({"advantage.grpo.advantages"}, {"reduce.row_sums"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_is_called_as_its_parameters_allow(way: str) -> None:
    """Packed where segments may stand, of rows where numbers of rows may, without a gradient where it is a log's.

    What must be finite is told by the docstring.
    """
    called = {b.path.split(" ")[0].removeprefix(f"{SIGNAL}.") for b in boundaries(TARGET) if way in b.settings}
    so, otherwise = WAYS[way]
    assert so <= called
    assert not otherwise & called


def test_what_refuses_is_asked_elsewhere() -> None:
    """By name; what an audit asks for is found by a walk."""
    asked = {b.path.split(" ")[0] for b in boundaries(TARGET)}
    assert f"{SIGNAL}.groups.places" in asked
    assert not {f"{SIGNAL}.{name}" for name in APART} & asked


def test_the_same_up_to_rounding_where_it_counts() -> None:
    """Elsewhere anything may stand; another layout is judged elsewhere."""
    held, one = Held(TARGET, f"{SIGNAL}.kl.k1", {}), torch.tensor([1.0, 2.0])
    held.same([one + 1e-7, 3], [one, 4], None)
    held.same([torch.tensor([1.0, 9.0])], [one], torch.tensor([True, False]))
    held.same([torch.ones(3)], [one], None)
    with pytest.raises(ValueError, match=r"^rl_sentinel\.signal\.kl\.k1 gave tensor\(\[1\., 9\.\]\), expected tensor"):
        held.same([torch.tensor([1.0, 9.0])], [one], None)
    with pytest.raises(ValueError, match="gave"):
        held.same([torch.tensor([1.0, torch.nan])], [one], None)
