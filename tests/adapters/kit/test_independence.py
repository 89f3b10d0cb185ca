"""Samples with data of their own, and with shared data at any depth."""

from rl_sentinel.adapters.kit.independence import changed_by_others


def test_own() -> None:
    """Equal data is no shared data."""
    samples = [{"tries": [1]}, {"tries": [1]}]
    assert changed_by_others(samples) == [0, 0]
    assert samples == [{"tries": [1]}, {"tries": [1]}]


def test_shared() -> None:
    """A shared list inside two dicts, and a third sample without it."""
    tries = [1]
    samples = [{"tries": tries}, {"tries": tries}, {"tries": [1]}]
    assert changed_by_others(samples) == [1, 1, 0]
    assert tries == [1]


def test_immutable() -> None:
    """A tuple and a text may be shared; a sample that holds itself is walked once."""
    text = ("a", "b")
    loop: dict[str, object] = {"text": text}
    loop["self"] = text
    assert changed_by_others([loop, {"text": text}]) == [0, 0]
