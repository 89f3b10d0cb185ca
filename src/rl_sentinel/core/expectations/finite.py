"""``Finite``: numbers must be finite."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.core.expectations.base import Expectation, Measured, Pair
from rl_sentinel.core.expectations.measuring import at_positions, because, first_cell
from rl_sentinel.core.phrasing import at, number


@dataclass(frozen=True, slots=True, eq=False)
class Finite(Expectation):
    """Expect that every number is finite where ``where`` is True."""

    output: str
    observed: Tensor
    where: Tensor | None = None
    reason: str = field(default="", kw_only=True)
    key: str = field(default="", kw_only=True)

    def measure(self) -> Measured | None:
        """An infinite distance if a number is not finite, else 0; None if no position is compared."""
        where = torch.ones_like(self.observed, dtype=torch.bool) if self.where is None else self.where
        return Measured(math.inf if bool(self.broken().any()) else 0.0, 0.0) if bool(where.any()) else None

    def broken(self) -> Tensor:
        """True where a number is NaN or infinite."""
        wrong = ~self.observed.isfinite()
        return wrong if self.where is None else wrong & self.where

    def sentence(self) -> str:
        """The first number that is not finite."""
        cell = first_cell(self.broken())
        text = f"{self.output} is {number(self.observed[cell].item())}{at(cell)}"
        return because(text, self.reason)

    def assertion(self, observed: str, expected: str = "") -> str:  # noqa: ARG002 - the signature of the base class
        """A Python expression: all numbers are finite at every position of ``where``."""
        return f"bool(({observed}).isfinite(){at_positions(self.where, self.observed)}.all())"

    @override
    def pairs(self) -> tuple[Pair, ...]:
        return (Pair(self.output, None, self.observed),)
