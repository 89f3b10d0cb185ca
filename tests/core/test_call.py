"""Places in what earlier calls left, and equality of arguments."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rl_sentinel.core.call import Use, same_value


def test_a_place_is_followed_by_attribute_and_key() -> None:
    place = Use("data").attribute("batch")["rows"][1]
    assert str(place) == "data.batch['rows'][1]"
    assert place.follow({"data": SimpleNamespace(batch={"rows": [5, 7]})}) == 7
    with pytest.raises(KeyError):
        Use("absent").follow({})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.nan]), True),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), False),
        (torch.tensor([1.0]), torch.tensor([[1.0]]), False),
        (torch.tensor([1]), [1], False),
        (np.array(["a"]), np.array(["a"]), True),
        (np.array(["a"]), np.array(["b"]), False),
        (float("nan"), float("nan"), True),
        (np.array([[1.0, np.nan]]), np.array([[1.0, np.nan]]), True),
        (np.array([[1.0, np.nan]]), np.array([[np.nan, 1.0]]), False),
        (np.array(1.5), np.array(1.5), True),
        (1, 1.0, False),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": 1}, {"b": 1}, False),
        (SimpleNamespace(x=1), SimpleNamespace(x=1), True),
        (SimpleNamespace(x=1), SimpleNamespace(x=2), False),
        (len, len, True),
        (len, max, False),
        (partial(max, default=1), partial(max, default=1), True),
        (partial(max, default=1), partial(max, default=2), False),
    ],
)
def test_equal_arguments(one: object, other: object, same: bool) -> None:
    assert same_value(one, other) is same
