"""Answers: a call that raised is a break, one that returned is none."""

import re

import pytest

from rl_sentinel.core.expectations import Answers, Listed


def test_returned() -> None:
    measured = Answers("loss", "").measure()
    assert measured is not None
    assert measured.distance <= measured.allowed


def test_raised() -> None:
    """The exception stands in one line, with its place and the reason."""
    answers = Answers("loss", "RuntimeError: stack expects\n  a non-empty list", "loss.py:3", reason="why")
    measured = answers.measure()
    assert measured is not None
    assert measured.distance > measured.allowed
    assert answers.broken().tolist() == [True]
    assert answers.kind == "RuntimeError"
    assert answers.sentence() == "raises RuntimeError: stack expects a non-empty list (loss.py:3): why"
    assert answers.assertion("message") == "(message) is None"
    assert answers.pairs() == ()


@pytest.mark.parametrize(
    ("message", "holds"),
    [
        (None, True),
        ("", False),
        ("unknown kind full", False),
        ("full needs the logits of all tokens", True),
        ("the logits of all tokens are missing", True),
    ],
)
def test_a_listed_value_may_be_refused_with_what_it_needs(message: str | None, *, holds: bool) -> None:
    """The assertion of a script agrees with ``explains``."""
    listed = Listed("kind", "full")
    text = Answers("kl", "NotImplementedError", listed=listed).assertion("message")
    assert eval(text, {"message": message, "re": re}) is holds  # noqa: S307 - an expression of ours
    assert message is None or listed.explains(message) is holds


def test_long_exceptions_are_cut_at_a_word() -> None:
    answers = Answers("loss", f"RuntimeError: {'word ' * 60}", "loss.py:3")
    assert answers.sentence() == f"raises RuntimeError: {'word ' * 20}... (loss.py:3)"
