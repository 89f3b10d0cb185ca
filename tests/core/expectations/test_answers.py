"""Answers: a call that raised is a break, one that returned is none."""

from rl_sentinel.core.expectations import Answers


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


def test_long_exceptions_are_cut_at_a_word() -> None:
    answers = Answers("loss", f"RuntimeError: {'word ' * 60}", "loss.py:3")
    assert answers.sentence() == f"raises RuntimeError: {'word ' * 20}... (loss.py:3)"
