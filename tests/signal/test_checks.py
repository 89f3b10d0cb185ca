"""What is refused, and in which words."""

from functools import partial

import pytest
import torch

from rl_sentinel.core.errors import InputError, SentinelError
from rl_sentinel.signal.checks import checked, finite, instance, kinds, possible, probabilities, within

ROWS, FACTS, LABELS = torch.zeros(2), torch.ones(2).bool(), torch.zeros(2).long()


def test_sound() -> None:
    """What fits is let through, whatever stands where nothing counts."""
    checked("B", reward=ROWS.bfloat16(), group=LABELS.int(), live=FACTS)
    checked("B T", reward=torch.zeros(0, 3), mask=torch.zeros(0, 3).bool())
    finite("reward", torch.tensor([torch.nan, 1.0]), where=torch.tensor([False, True]), why="it counts")
    within("decay", 1.0, least=0.0, most=1.0)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {"mask": ROWS},
            "mask has dtype float32, expected bool: a mask says yes or no; compare numbers to make one, as in mask > 0",
        ),
        (
            {"group": ROWS},
            (
                "group has dtype float32, expected whole: "
                "labels and counts are integers; convert them, as in labels.long()"
            ),
        ),
        (
            {"length": FACTS},
            "length has dtype bool, expected whole: labels and counts are integers; convert them, as in labels.long()",
        ),
        ({"reward": LABELS}, "reward has dtype int64, expected floating: convert it, as in values.float()"),
        (
            {"reward": ROWS, "live": FACTS[:1]},
            "live has shape [1], expected [2]: that of reward",
        ),
        ({"reward": ROWS.unsqueeze(1)}, "reward has shape [2, 1], expected 1 axes [B]: no tensor is broadcast"),
    ],
)
def test_kinds_and_shapes(tensors: dict[str, torch.Tensor], message: str) -> None:
    """The first tensor that does not fit is named."""
    with pytest.raises(InputError) as told:
        checked("B", **tensors)
    assert str(told.value) == message


def test_numbers_where_they_count() -> None:
    """The place is named on each axis; the error is one line of the user's, and a ValueError."""
    values = torch.tensor([[0.0, torch.inf], [torch.nan, 0.0]])
    with pytest.raises(InputError) as told:
        finite("value", values, where=torch.tensor([[True, False], [True, True]]), why="it is trained")
    assert str(told.value) == "value[1, 0] is nan, expected a finite number: it is trained"
    assert isinstance(told.value, SentinelError)
    assert isinstance(told.value, ValueError)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (-0.1, "decay is -0.1, expected a number of 0 or more and at most 1"),
        (1.1, "decay is 1.1, expected a number of 0 or more and at most 1"),
        (float("nan"), "decay is nan, expected a number of 0 or more and at most 1"),
    ],
)
def test_ranges(number: float, message: str) -> None:
    """Outside on either side, and what is no number."""
    with pytest.raises(InputError) as told:
        within("decay", number, least=0.0, most=1.0)
    assert str(told.value) == message


def test_open_range() -> None:
    """A bound that must be exceeded is refused itself; without an end, what has no end."""
    with pytest.raises(InputError, match=r"^scale is 0\.0, expected a number above 0$"):
        within("scale", 0.0, least=0.0, open_below=True)
    with pytest.raises(InputError, match=r"^scale is inf, expected a finite number above 0$"):
        within("scale", torch.inf, least=0.0, open_below=True)


def test_no_bound_and_no_end() -> None:
    """Infinity is taken where it says that nothing bounds; a whole number is one that a tensor can hold."""
    within("threshold", torch.inf, least=0.0, most=torch.inf)
    with pytest.raises(InputError, match=r"^width is 1e\+30, expected a whole number of 0 or more$"):
        within("width", 1e30, least=0, whole=True)


def test_numbers_that_their_kind_cannot_be() -> None:
    """Probabilities in the place of their logs; what rounding makes of a sure token is let through."""
    probabilities(logprob=torch.tensor([0.25, 9.0]), where=torch.tensor([True, False]))
    with pytest.raises(InputError, match=r"^old\[1\] is 0\.75, expected at most 0: it is the log of a probability"):
        probabilities(new=torch.zeros(2), old=torch.tensor([0.25, 0.75]), where=torch.tensor([True, True]))
    share = partial(
        possible, "share", where=torch.tensor([True, True]), least=0.0, most=1.0, slack=0.01, why="it is one"
    )
    share(torch.tensor([1.005, torch.nan]))
    for wrong in (-0.25, 1.25):
        with pytest.raises(InputError, match=rf"^share\[1\] is {wrong}, expected from 0 to 1: it is one$"):
            share(torch.tensor([0.0, wrong]))


def test_no_numbers_at_all() -> None:
    """A tensor of shapes alone has none that could be asked for."""
    with pytest.raises(InputError, match=r"^reward is on the meta device, expected numbers: "):
        kinds(reward=ROWS.to("meta"))


def test_of_another_class() -> None:
    """Told with what was given, and what it should have been."""
    instance("mode", "token-mean", str, "a word")
    with pytest.raises(InputError) as told:
        instance("aggregation", "token-mean", dict, "a mode, and what is divided by")
    assert str(told.value) == "aggregation is 'token-mean', expected a dict: a mode, and what is divided by"
