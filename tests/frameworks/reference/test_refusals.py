"""What counts as a refusal: one that says which argument it is about."""

import pytest

from rl_sentinel.core.errors import InputError
from rl_sentinel.frameworks.reference.refusals import by_name, names


def _refused() -> None:
    raise InputError("values[1] is nan, expected a finite number")


def test_a_refusal_names_its_argument() -> None:
    """By a whole word: `value` is not `values`."""
    with pytest.raises(InputError):
        by_name(_refused, "mask", "values")
    assert by_name(_refused, "value") is None
    assert by_name(lambda: 3, "value") == 3


def test_names() -> None:
    """Wherever it stands in the sentence."""
    told = InputError("mask has shape [2], expected [3]: that of reward")
    assert names(told, "reward")
    assert not names(told, "rewards", "row")
