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
        ("null", "null", 4.0),
        ("null", ["null"], 4.0),
        ("null", None, 0.0),
        ("1e5", 100000.0, 0.0),
        ("\n", "\\n", -1.0),
        ("ab", "ac", 1.0),
    ],
)
def test_by_hand(given: Scalar, arrived: object, number: float) -> None:
    """A number that is missing is infinite; of a text, characters in place count, less those after its end."""
    assert arrives(given, arrived) == number
