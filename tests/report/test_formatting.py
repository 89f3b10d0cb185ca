"""Lines of a report: wrapped, cut, numbered."""

import pytest

from rl_sentinel.report.formatting import numbers, one_line, wrapped


def test_lines_hang_below_the_first() -> None:
    path = "m." + "x" * 90
    assert wrapped(f"at {path} of it", indent="  where ", hanging="    ") == ["  where at", f"    {path}", "    of it"]


def test_cut_lines_end_in_dots() -> None:
    made = wrapped("seven " * 40, indent="- ", hanging="  ", lines=2)
    assert [len(line) <= 80 for line in made] == [True, True]
    assert made[-1].endswith(" seven ...")
    assert wrapped("short", lines=2) == ["short"]


@pytest.mark.parametrize(("text", "short"), [("a b", "a b"), ("a\n  b", "a b"), ("a bcdefgh", "a b...")])
def test_one_line_is_cut(text: str, short: str) -> None:
    assert one_line(text, 6) == short


@pytest.mark.parametrize(
    ("value", "text"), [(-0.0, "0"), ([float("nan"), 1], "[nan, 1]"), ([[]], "[[]]"), ("inf", "inf")]
)
def test_numbers_are_short(value: object, text: str) -> None:
    """A negative zero is 0; words that stand for numbers stay as they are."""
    assert numbers(value) == text
