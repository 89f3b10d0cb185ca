"""What counts as a refusal: one that says which argument it is about."""

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.errors import InputError
from rl_sentinel.frameworks.reference.refusals import by_name, names, of_words


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


def test_a_raw_error_is_no_refusal() -> None:
    """What goes on with nonsense until something gives way has taken it; where it is sound the error is told."""

    def call(setting: str) -> float:
        return 1 / int(setting != "nothing")

    (found,) = of_words("mine.share", call, {"sound": 0, "nothing": 0})
    batch = batch_of(torch.ones(1, 1).bool())
    assert [found.call(batch, {"nonsense": n})["accepted"].item() for n in ("sound", "nothing")] == [1, 1]
    (sound,) = of_words("mine.share", call, {"sound": 0, "nothing": 0}, sound=["nothing"])
    with pytest.raises(ZeroDivisionError):
        sound.call(batch, {"nonsense": "nothing"})
