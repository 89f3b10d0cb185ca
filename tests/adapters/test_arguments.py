"""The form in which a parameter gets its column."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_sentinel.adapters.arguments import arguments, described, reads
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.errors import Unbindable

MASK = torch.tensor([[True, True, False], [True, True, True]])
BATCH = batch_of(
    MASK, reward=torch.tensor([1.0, 2.0]), length=torch.tensor([2, 3]), group=torch.tensor([4, 5]), value=MASK * 3.0
)


def annotated(group: np.ndarray[Any, Any], uid: Tensor, index: object, uids: "np.ndarray[Any, Any]") -> None:
    """Labels in two forms."""


def spelled(group: "np.ndarray[Any, Any]", groups: object, group_ids: "Tensor") -> None:
    """An annotation in words, one that says nothing, and a tensor's."""


def masked(mask: Tensor, response_mask: Tensor, values: Tensor, gamma: float, colour: int = 7) -> None:
    """Masks in two forms, a number, and a name that nobody knows."""


def test_labels_are_numpy_where_said_or_usual() -> None:
    """The annotation decides; without one, the names that frameworks use for arrays of uids."""
    given = arguments(annotated, BATCH)
    assert {n for n, v in given.items() if isinstance(v, np.ndarray)} == {"group", "index", "uids"}
    assert given["index"].dtype == object
    assert given["index"].tolist() == ["prompt-4", "prompt-5"]
    assert torch.equal(given["uid"], torch.tensor([4, 5]))
    given = arguments(spelled, BATCH)
    assert [isinstance(v, np.ndarray) for v in given.values()] == [True, False, False]
    assert isinstance(arguments(lambda index: index, BATCH)["index"], np.ndarray)
    assert isinstance(arguments(lambda group: group, BATCH)["group"], Tensor)


@pytest.mark.parametrize("name", ["reward", "rewards", "score", "scores", "outcome"])
def test_a_reward_per_row(name: str) -> None:
    """These names are the outcome reward, one number a row."""
    function = eval(f"lambda {name}: 0")  # noqa: S307 - a parameter of this name
    assert torch.equal(arguments(function, BATCH)[name], torch.tensor([1.0, 2.0]))
    assert reads(function) == {"reward"}


@pytest.mark.parametrize("name", ["token_level_rewards", "token_rewards"])
def test_a_reward_per_token(name: str) -> None:
    """These have the outcome reward on the last token of the response."""
    function = eval(f"lambda {name}: 0")  # noqa: S307 - a parameter of this name
    assert torch.equal(arguments(function, BATCH)[name], torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]))
    assert reads(function) == {"reward", "token_reward", "length"}


def test_masks_and_numbers() -> None:
    """``response_mask`` counts, ``mask`` is true or false; a discount is one; an unknown default stays."""
    given = arguments(masked, BATCH)
    assert given.keys() == {"mask", "response_mask", "values", "gamma"}
    assert torch.equal(given["mask"], MASK)
    assert torch.equal(given["response_mask"], MASK.to(torch.int64))
    assert torch.equal(given["values"], MASK * 3.0)
    assert given["gamma"] == 1.0
    words = "mask=mask[2, 3], response_mask=mask[2, 3], values=value[2, 3], gamma=one"
    assert described(given) == words


def test_unknown_parameter_is_named() -> None:
    """One without a default cannot be passed anything."""
    with pytest.raises(Unbindable, match="wants 'colour'"):
        reads(lambda rewards, colour: (rewards, colour))
