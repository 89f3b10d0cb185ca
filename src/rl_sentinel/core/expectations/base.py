"""The base of all expectations, and what they measure and compare."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Measured(NamedTuple):
    """How far a result is from the expectation, and how far it may be."""

    distance: float
    allowed: float


class Pair(NamedTuple):
    """One output of a call, and what it is compared with: another call's output, or numbers; None for neither."""

    output: str
    expected: Tensor | None
    observed: Tensor


@dataclass(frozen=True, slots=True)
class Change:
    """What differs between the two calls that are compared, as the subject of a sentence.

    Where one column of the batch was changed: its name, the first cell that differs, the two values there, and how
    many cells differ.
    """

    subject: str
    column: str = ""
    cell: tuple[int, ...] = ()
    before: float = math.nan
    after: float = math.nan
    cells: int = 0


def changed(subject: str, column: str, before: Tensor, after: Tensor) -> Change:
    """The change of one column of a batch.

    Example:
        >>> import torch
        >>> from rl_sentinel.core.expectations import changed
        >>> changed("its reward", "reward", torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]))
        Change(subject='its reward', column='reward', cell=(1,), before=2.0, after=3.0, cells=1)
    """
    differ = torch.nonzero((before != after) & ~(before.isnan() & after.isnan()))
    if not len(differ):
        return Change(subject, column)
    cell = tuple(int(index) for index in differ[0])
    return Change(subject, column, cell, before[cell].item(), after[cell].item(), len(differ))


class Expectation(ABC):
    """What a law expects of one output; ``key`` tells apart several expectations of a law on the same output."""

    __slots__ = ()
    output: str
    key: str
    where: Tensor | None

    @property
    def name(self) -> str:
        """The name under which a shrunk case must break the same expectation."""
        return self.key or self.output

    @property
    def exact(self) -> bool:
        """Whether the law itself sets the tolerance, so that a break is not checked a second time in float64."""
        return True

    @abstractmethod
    def measure(self) -> Measured | None:
        """Distance and allowance; None where there is nothing to compare."""

    @abstractmethod
    def broken(self) -> Tensor:
        """True at the positions of the observed tensor that are not as expected."""

    @abstractmethod
    def sentence(self) -> str:
        """What goes wrong, in the words of the field."""

    @abstractmethod
    def assertion(self, observed: str, expected: str = "") -> str:
        """A Python expression that is True where the expectation holds.

        Args:
            observed: expression of the observed tensor.
            expected: expression of the tensor that it is compared with, where there is one.
        """

    def pairs(self) -> tuple[Pair, ...]:
        """The results that are compared."""
        return ()
