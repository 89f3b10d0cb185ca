"""The ignore index that the code of a loss shows."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - as losses import it

from rl_sentinel.adapters.kit.ignored_ids import USUAL, ignored_ids

NAMES = ["labels", "targets"]

#: An ignore index as a global of the module, as frameworks have it.
IGNORED = -7


def named_in_a_call(logits: Any, labels: Any) -> Any:
    """The argument ``ignore_index`` is a global."""
    return F.cross_entropy(logits, labels, ignore_index=IGNORED)


def default_of_a_parameter(logits: Any, labels: Any, ignored: int = -3) -> Any:
    """The number is the default of a parameter."""
    return (logits * (labels != ignored)).sum()


def only_the_sign(logits: Any, labels: Any) -> Any:
    """Any negative id is ignored."""
    return (logits * (labels >= 0)).sum()


def after_a_shift(logits: Any, labels: Any) -> Any:
    """The compared variable is a part of the labels."""
    shifted, scores = labels[:, 1:], logits[:, :-1]
    return (scores * shifted.contiguous().ne(-2)).sum()


def key_of_a_dict(batch: Any) -> Any:
    """The labels are an item of a dict."""
    return (batch["labels"] != -5).sum()


def through_a_helper(logits: Any, labels: Any) -> Any:
    """Another function of this module compares."""
    return logits.sum() / only_the_sign(logits, labels)


def compares_sizes_and_sums(logits: Any, labels: Any) -> Any:
    rows = labels.shape[0]
    if rows == 0 or labels.numel() == 0 or labels[:, 1:].sum() > 0:
        return logits.sum()
    return logits.mean()


def compares_something_else(logits: Any, labels: Any) -> Any:
    """The labels are compared with a positive number, and another tensor with a negative one."""
    return (logits > -4).sum() + (labels == 2).sum() + (labels != True).sum()  # noqa: E712 - a bool is no id


class Loss:
    """A loss whose attribute is the ignore index."""

    ignored = -9

    def __call__(self, logits: Any, targets: Any) -> Any:
        """Compare with the attribute."""
        return (logits * (targets != self.ignored)).sum()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (named_in_a_call, dict.fromkeys(NAMES, -7)),
        (default_of_a_parameter, {"labels": -3}),
        (only_the_sign, {"labels": USUAL}),
        (after_a_shift, {"labels": -2}),
        (key_of_a_dict, {"labels": -5}),
        (through_a_helper, {"labels": USUAL}),
        (compares_something_else, {}),
        (compares_sizes_and_sums, {}),
        (Loss().__call__, {"targets": -9}),
    ],
)
def test_what_the_code_shows(function: Callable[..., Any], expected: dict[str, int]) -> None:
    assert ignored_ids(function, NAMES) == expected


def test_the_usual_index_is_that_of_torch() -> None:
    with_usual = F.cross_entropy(torch.zeros(2, 3), torch.tensor([1, USUAL]))
    assert with_usual == F.cross_entropy(torch.zeros(1, 3), torch.tensor([1]))
