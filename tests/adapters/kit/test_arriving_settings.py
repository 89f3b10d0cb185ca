"""What arrives of a setting, by hand."""

import pytest

from rl_sentinel.adapters.kit.arriving_settings import arrives
from rl_sentinel.core.case import Scalar


@pytest.mark.parametrize(
    ("given", "arrived", "number"),
    [
        (0.5, 0.5, 0.5),
        (3, 3, 3.0),
        (3, None, float("inf")),
        (0.5, "0.5", float("inf")),
        ("null", "null", 1.0),
        ("null", ["null"], 1.0),
        ("null", None, 0.0),
        ("1e5", 100000.0, 0.0),
        ("\n", "\\n", 0.0),
        ("ab", "ac", 0.0),
    ],
)
def test_by_hand(given: Scalar, arrived: object, number: float) -> None:
    """A number that is missing is infinite; a text arrives or does not."""
    assert arrives(given, arrived) == number
