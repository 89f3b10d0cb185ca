"""Numbers and places in words."""

import math

import pytest

from rl_sentinel.core.phrasing import at, coordinates, nearest, number, of, reason_of, two_numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(-0.0, "0"), (0.5, "0.5"), (1 / 3, "0.3333"), (-12345.0, "-12345"), (1e12, "1e+12"), (-math.inf, "-infinity")],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


def test_two_numbers_read_differently() -> None:
    assert two_numbers(1 / 3, 0.33333334) == ("0.333333333", "0.33333334")
    assert two_numbers(0.5, 0.5) == ("0.5", "0.5")
    assert two_numbers(1.0, math.nan) == ("1", "NaN")


def test_places() -> None:
    assert coordinates((1, 0, 7)) == "row 1, token 0, word 7"
    assert (at((2,)), of("loss", ()), of("keep", (2,)), of("keep", (2, 1))) == (
        " at row 2",
        "loss",
        "keep of row 2",
        "keep at row 2, token 1",
    )


def test_a_long_list_of_names_is_cut() -> None:
    assert nearest("zzz", [f"n{k}" for k in range(63)]).endswith("n58, n59 and 3 others")


def test_the_reason_of_an_exception_is_one_short_line() -> None:
    assert reason_of(OSError(28, "No space left on device")) == "No space left on device"
    assert reason_of(ValueError("a\n" * 500)) == "a " * 100 + "..."
