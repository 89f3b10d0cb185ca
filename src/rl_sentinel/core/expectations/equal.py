"""``Equal``: two tensors must be equal, up to rounding or a tolerance."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.core.expectations.base import Change, Expectation, Measured, Pair
from rl_sentinel.core.expectations.measuring import at_positions, because, first_cell, largest, rounding
from rl_sentinel.core.phrasing import at, of, two_numbers


@dataclass(frozen=True, slots=True, eq=False)
class Equal(Expectation):
    """Expect that two tensors are equal where ``where`` is True, up to rounding or ``tolerance``.

    Positions at which the expected number is not finite are not compared.

    ``scale`` is the largest magnitude among the inputs of the arithmetic, besides the two tensors; rounding is
    proportional to it. With a ``change``, ``expected`` is the result before it, and ``observed`` the result after it.
    ``says`` replaces the sentence.
    """

    output: str
    expected: Tensor
    observed: Tensor
    where: Tensor | None = None
    scale: float = 0.0
    tolerance: float | None = field(default=None, kw_only=True)
    change: Change | None = field(default=None, kw_only=True)
    reason: str = field(default="", kw_only=True)
    key: str = field(default="", kw_only=True)
    says: str = field(default="", kw_only=True)

    @property
    def exact(self) -> bool:
        """Whether the law gives a tolerance."""
        return self.tolerance is not None

    def measure(self) -> Measured | None:
        """The largest difference; infinite if an observed number is not finite or the shapes differ.

        None if no position is compared.
        """
        where = self._counted()
        if not bool(where.any()):
            return None
        if torch.equal(self.expected, self.observed):
            return Measured(0.0, 0.0)
        if self.expected.shape != self.observed.shape:
            return Measured(math.inf, 0.0)
        distance = largest((self.observed.double() - self.expected.double())[where])
        if self.tolerance is not None:
            return Measured(distance, self.tolerance)
        size = self.expected.double()[where].abs().max().item() + self.scale
        return Measured(distance, rounding(size, self.expected, self.observed))

    def _counted(self) -> Tensor:
        finite = self.expected.isfinite()
        return finite if self.where is None else self.where & finite

    def broken(self) -> Tensor:
        """True at compared positions that differ by more than the allowance; everywhere if the shapes differ."""
        if self.expected.shape != self.observed.shape:
            return torch.ones_like(self.observed, dtype=torch.bool)
        gap = (self.observed.double() - self.expected.double()).abs()
        return self._counted().expand(gap.shape) & ~(gap <= self._allowed())

    def _allowed(self) -> float:
        measured = self.measure()
        return measured.allowed if measured else 0.0

    def sentence(self) -> str:
        """The text ``says``; without it, the first broken cell, with the change that moved it or the expected value."""
        if self.says:
            return self.says
        if self.expected.shape != self.observed.shape:
            shapes = f"{list(self.observed.shape)}, expected {list(self.expected.shape)}"
            return because(f"{self.output} has shape {shapes}", self.reason)
        cell = first_cell(self.broken())
        expected, observed = two_numbers(self.expected[cell].item(), self.observed[cell].item())
        if self.change is None:
            return because(f"{self.output} is {observed}{at(cell)}, expected {expected}", self.reason)
        moves = f"{self.change.subject} moves {of(self.output, cell)} from {expected} to {observed}"
        return f"{self.reason}, yet {moves}" if self.reason else moves

    def assertion(self, observed: str, expected: str = "") -> str:
        """A Python expression: the difference is within the allowance at every position of ``where``."""
        near = f"(({observed}).double() - ({expected}).double()).abs() <= {self._allowed():.3g}"
        return f"bool(({near}){at_positions(self.where, self.observed)}.all())"

    @override
    def pairs(self) -> tuple[Pair, ...]:
        return (Pair(self.output, self.expected, self.observed),)
