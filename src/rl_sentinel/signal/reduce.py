"""Sums and means over trained tokens, each with its denominator given; nothing is hidden by a product."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Mode = Literal["token-mean", "sequence-mean-token-mean", "sequence-mean-token-sum", "token-sum"]


def selected(values: Float[Tensor, "B T"], *, mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """The values on trained tokens and exactly 0 elsewhere, whatever stood there.

    Example:
        >>> selected(torch.tensor([[1.0, torch.nan]]), mask=torch.tensor([[True, False]]))
        tensor([[1., 0.]])
    """
    return torch.where(mask, values, torch.zeros_like(values))


def row_sums(values: Float[Tensor, "B T"], *, mask: Bool[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """The sum over each row's trained tokens; 0 for a row without any.

    Example:
        >>> row_sums(torch.tensor([[1.0, 2.0], [5.0, 5.0]]), mask=torch.tensor([[True, True], [False, False]]))
        tensor([3., 0.])
    """
    return selected(values, mask=mask).sum(dim=1)


def row_means(values: Float[Tensor, "B T"], *, mask: Bool[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """The mean over each row's trained tokens; 0 for a row without any.

    Example:
        >>> row_means(torch.tensor([[1.0, 2.0], [5.0, 5.0]]), mask=torch.tensor([[True, True], [False, False]]))
        tensor([1.5000, 0.0000])
    """
    return row_sums(values, mask=mask) / mask.sum(dim=1).clamp(min=1)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How token losses become one number, and by what they are divided.

    ``denominator`` is counted over the whole mini-batch and all ranks, never over the micro-batch at
    hand: trained tokens for ``"token-mean"``, live rows for the two sequence means; a
    ``"token-sum"`` may be divided by any number, such as rows times a fixed length.
    """

    mode: Mode
    denominator: float

    def __post_init__(self) -> None:
        """Refuse a denominator that no count can be."""
        if not self.denominator > 0:
            message = (
                f"denominator is {self.denominator}, expected a positive number: "
                "count trained tokens or live rows of the whole mini-batch"
            )
            raise ValueError(message)


def aggregate(
    values: Float[Tensor, "B T"], *, mask: Bool[Tensor, "B T"], aggregation: Aggregation
) -> Float[Tensor, ""]:
    """One number from values per token; the parts of a mini-batch add up to the whole.

    Args:
        values: one number per token; anything off the mask.
        mask: True on trained tokens.
        aggregation: the mode and the denominator.

    Returns:
        The sum over rows, or of each row's mean, by the denominator.

    Example:
        >>> values = torch.tensor([[1.0, 3.0], [8.0, 0.0]])
        >>> mask = torch.tensor([[True, True], [True, False]])
        >>> aggregate(values, mask=mask, aggregation=Aggregation("token-mean", 3.0))
        tensor(4.)
        >>> aggregate(values, mask=mask, aggregation=Aggregation("sequence-mean-token-mean", 2.0))
        tensor(5.)
    """
    by_row = row_means if aggregation.mode == "sequence-mean-token-mean" else row_sums
    return by_row(values, mask=mask).sum() / aggregation.denominator
