"""``Within``: numbers must lie within bounds."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.core.expectations.base import Expectation, Measured, Pair
from rl_sentinel.core.expectations.measuring import at_positions, because, first_cell, largest, literal, rounding
from rl_sentinel.core.phrasing import at, number


@dataclass(frozen=True, slots=True, eq=False)
class Within(Expectation):
    """Expect that every number lies between two bounds; ``strict`` excludes the bounds, and None means no bound.

    ``scale`` is the largest magnitude in the arithmetic, to which the allowed rounding is proportional; strict bounds
    allow none. With ``between_calls``, the lower bound is the same output of another call; a script that reproduces the
    finding makes this call.
    """

    output: str
    observed: Tensor
    low: Tensor | None
    high: Tensor | None
    where: Tensor | None = None
    scale: float = 0.0
    strict: bool = field(default=False, kw_only=True)
    between_calls: bool = field(default=False, kw_only=True)
    reason: str = field(default="", kw_only=True)
    key: str = field(default="", kw_only=True)

    @property
    @override
    def exact(self) -> bool:
        return self.strict

    def measure(self) -> Measured | None:
        """The largest excess over a bound; infinite for NaN, 1 if a number only equals a strict bound.

        None if no number is compared.
        """
        where = torch.ones_like(self.observed, dtype=torch.bool) if self.where is None else self.where
        if not bool(where.any()):
            return None
        distance = largest(self._excess()[where.expand(self.observed.shape)])
        if not self.strict:
            return Measured(distance, self._allowed())
        return Measured(distance or float(bool(self.broken().any())), 0.0)

    def _allowed(self) -> float:
        return 0.0 if self.strict else rounding(self.scale, self.observed)

    def _excess(self) -> Tensor:
        value = self.observed.double()
        low, high = self._bound(self.low, -math.inf), self._bound(self.high, math.inf)
        above = torch.where(value <= high, 0.0, value - high)
        return torch.where(value >= low, above, low - value)

    def _bound(self, bound: Tensor | None, otherwise: float) -> Tensor:
        return torch.full_like(self.observed, otherwise).double() if bound is None else bound.double()

    def broken(self) -> Tensor:
        """True where a number is beyond a bound or, with strict bounds, equal to a bound."""
        value = self.observed.double()
        wrong = ~(self._excess() <= self._allowed())
        if self.strict:
            wrong |= (value == self._bound(self.low, -math.inf)) | (value == self._bound(self.high, math.inf))
        return wrong if self.where is None else wrong & self.where

    def sentence(self) -> str:
        """The first number out of bounds, and the bound."""
        cell = first_cell(self.broken())
        text = f"{self.output} is {number(self.observed[cell].item())}{at(cell)}, expected {self._range(cell)}"
        return because(text, self.reason)

    def _range(self, cell: tuple[int, ...]) -> str:
        low, high = (self._bound(b, x)[cell].item() for b, x in ((self.low, -math.inf), (self.high, math.inf)))
        if math.isnan(low) or math.isnan(high):
            return "a number in both calls" if self.between_calls else "a number"
        if math.isinf(high):
            return f"{'above' if self.strict else 'at least'} {number(low)}"
        if math.isinf(low):
            return f"{'below' if self.strict else 'at most'} {number(high)}"
        return f"between {number(low)} and {number(high)}"

    def assertion(self, observed: str, expected: str = "") -> str:
        """A Python expression: the numbers are within the bounds at every position of ``where``."""
        parts = []
        for bound, sign in ((self.low, ">"), (self.high, "<")):
            if bound is not None:
                room = "" if self.strict else f" {'-' if sign == '>' else '+'} {self._allowed():.3g}"
                limit = expected if self.between_calls and sign == ">" else f"torch.tensor({literal(bound)})"
                parts.append(f"(({observed}) {sign if self.strict else f'{sign}='} {limit}{room})")
        return f"bool(({' & '.join(parts)}){at_positions(self.where, self.observed)}.all())"

    def pairs(self) -> tuple[Pair, ...]:
        """The tensor, and the lower bound if it is the output of another call."""
        return (Pair(self.output, self.low if self.between_calls else None, self.observed),)
