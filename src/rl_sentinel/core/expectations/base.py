"""``Expectation``: the base class of expectations, with the records that they measure and compare."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Measured(NamedTuple):
    """The distance of a result from the expectation, and the allowed distance."""

    distance: float
    allowed: float


class Pair(NamedTuple):
    """One output of a call, and the value with which it is compared: an output of another call, numbers, or None."""

    output: str
    expected: Tensor | None
    observed: Tensor


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between two compared calls, as the subject of a sentence.

    If one column of the batch was changed, the other fields are its name, the first cell that differs, that cell's two
    values, and the number of cells that differ.
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
    """A condition of a law on one output.

    ``key`` distinguishes several expectations on the same output. ``where`` is True at the positions that are checked;
    None for all. In subclasses, ``reason`` says why the result must be so, at the end of the sentence.
    """

    __slots__ = ()
    output: str
    key: str
    where: Tensor | None

    @property
    def name(self) -> str:
        """The name of the expectation; a shrunk case must break the expectation of the same name."""
        return self.key or self.output

    @property
    def exact(self) -> bool:
        """Whether the law sets the tolerance; a break is then not checked again in float64."""
        return True

    @abstractmethod
    def measure(self) -> Measured | None:
        """The distance and the allowed distance; None if there is nothing to compare."""

    @abstractmethod
    def broken(self) -> Tensor:
        """True at each position at which the result is not as expected."""

    @abstractmethod
    def sentence(self) -> str:
        """One sentence that describes the fault."""

    @abstractmethod
    def assertion(self, observed: str, expected: str = "") -> str:
        """A Python expression that is True where the expectation holds.

        Args:
            observed: expression of the observed tensor.
            expected: expression of the tensor with which it is compared, if any.
        """

    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of results that are compared."""
        return ()
