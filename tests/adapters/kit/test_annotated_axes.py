"""Axes that annotations and docstrings state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.adapters.kit.annotated_axes import axes_of, documented_axes, item_class


@pytest.mark.parametrize(
    ("annotation", "axes"),
    [
        (Float[Tensor, "batch seq"], "BT"),
        (Annotated[Tensor, "a note", "num_prompts group_size"], "GK"),
        (Annotated[Tensor, "color"], ""),
        ("B, T", "BT"),
        ("samples", "B"),  # of a batch
        ("group_size", "K"),  # of one prompt
        ("T", ""),  # may be a type variable
        (Float[Tensor, "T"], "T"),  # no binding supports it, and the caller says so
        ("list[torch.Tensor]", "ragged"),
        (list[list[float]], "lists"),
        (list[int], "list"),
        (torch.Tensor, ""),
    ],
)
def test_axes_of_an_annotation(annotation: object, axes: str) -> None:
    """Names of axes are read in any case and style."""
    assert axes_of(annotation) == axes


def _documented(text: str) -> Callable[..., Any]:
    def function(rewards: Tensor, values: Tensor) -> Tensor:
        return rewards - values

    function.__doc__ = text
    return function


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("Subtract ``values`` from rewards [G, K].", "GK"),
        ("Args:\n    rewards, values: tensors of shape (B, T).", "BT"),
        ("Args:\n    rewards (torch.Tensor): of the samples.\n        Their shape is [T, B].\n    values: any.", "TB"),
        (":param rewards: shape (B,)", "B"),
        ("- `rewards`: shape (bs, seq_len)", "BT"),
        ("Add reward(s) of rewards (T).", ""),
        ("rewards: either of shape (B, T) or of shape (B,)", ""),  # two different shapes
        ("Nothing about axes.", ""),
    ],
)
def test_axes_of_a_docstring(text: str, axes: str) -> None:
    """After the name, or in the entry of the parameter."""
    assert documented_axes(_documented(text), "rewards") == axes


def test_the_only_parameter_needs_no_entry() -> None:
    """Its docstring begins with it; the shape of the result does not count."""

    def centered(rewards: Tensor) -> Tensor:
        """Rewards of one batch, of shape [B, T]; returns a tensor of shape [B]."""
        return rewards

    assert documented_axes(centered, "rewards") == "BT"


def test_items_of_a_list() -> None:
    """Only a sequence has items, and only a dataclass has fields."""

    @dataclass
    class Sample:
        reward: float

    assert item_class(list[Sample]) is Sample
    assert item_class(dict[str, Sample]) is None
    assert item_class(tuple[float, ...]) is None
