"""``Moves``: a change of the input must change an output."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rl_sentinel.core.expectations.base import Change, Expectation, Measured, Pair
from rl_sentinel.core.expectations.measuring import at_positions, because, first_cell
from rl_sentinel.core.phrasing import of, two_numbers


@dataclass(frozen=True, slots=True, eq=False)
class Moves(Expectation):
    """Expect that a change of the input moves an output where ``where`` is True.

    ``moved`` is True where the output moved on any of ``trials`` batches; with a ``direction``, where it rose (1) or
    fell (-1) by more than ``still``. ``shown`` maps outputs to the results before and after the change on the batch in
    the report.
    """

    output: str
    change: Change
    moved: Tensor
    shown: Mapping[str, tuple[Tensor, Tensor]]
    where: Tensor | None = None
    trials: int = field(default=1, kw_only=True)
    direction: int = field(default=0, kw_only=True)
    still: float = field(default=0.0, kw_only=True)
    reason: str = field(default="", kw_only=True)
    key: str = field(default="", kw_only=True)

    def measure(self) -> Measured | None:
        """A distance of 1 if the output does not move as it must at a position of ``where``, else 0.

        None if ``where`` has no position.
        """
        where = torch.ones_like(self.moved) if self.where is None else self.where
        return Measured(float(bool(self.broken().any())), 0.0) if bool(where.any()) else None

    def broken(self) -> Tensor:
        """True where the output did not move, or moved in the wrong direction."""
        return ~self.moved if self.where is None else ~self.moved & self.where

    def sentence(self) -> str:
        """States that the change had no effect, or the wrong effect."""
        cell = first_cell(self.broken())
        target = of(self.output, cell)
        before, after = self.shown.get(self.output, (None, None))
        if before is not None and after is not None and before.shape == self.moved.shape:
            old, new = before[cell].item(), after[cell].item()
            if self.direction and (new - old) * self.direction < 0:
                direction = "a rise" if self.direction > 0 else "a fall"
                old_text, new_text = two_numbers(old, new)
                moves = f"{self.change.subject} moves {target} from {old_text} to {new_text}, expected {direction}"
                return because(moves, self.reason)
        batches = f" on any of {self.trials} batches" if self.trials > 1 else ""
        return because(f"{self.change.subject} had no effect on {target}{batches}", self.reason)

    def assertion(self, observed: str, expected: str = "") -> str:
        """A Python expression that is True if the output moves.

        Without a direction, the output must differ somewhere. With a direction, it must move that way at every position
        of ``where``.
        """
        if not self.direction:
            return f"bool((({observed}) != ({expected})).any())"
        rise = f"({observed}) - ({expected})" if self.direction > 0 else f"({expected}) - ({observed})"
        return f"bool(({rise} > {self.still:.3g}){at_positions(self.where, self.moved)}.all())"

    def pairs(self) -> tuple[Pair, ...]:
        """Each output before the change and after it."""
        return tuple(Pair(name, before, after) for name, (before, after) in self.shown.items())
