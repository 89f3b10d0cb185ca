"""``Answers``: a valid input must give a result instead of an exception."""

from dataclasses import dataclass, field
from textwrap import shorten

import torch
from torch import Tensor

from rl_sentinel.core.expectations.base import Expectation, Measured

#: Most characters of an exception in a sentence.
MOST = 120


@dataclass(frozen=True, slots=True, eq=False)
class Answers(Expectation):
    """The call returns; ``exception`` is the exception that it raised instead (empty: none), ``place`` its line."""

    output: str
    exception: str
    place: str = ""
    where: Tensor | None = None
    reason: str = field(default="", kw_only=True)
    key: str = field(default="", kw_only=True)

    def measure(self) -> Measured | None:
        """1 if the call raised an exception."""
        return Measured(float(bool(self.exception)), 0.0)

    def broken(self) -> Tensor:
        """One cell: True if the call raised an exception."""
        return torch.tensor([bool(self.exception)], device="cpu")

    @property
    def kind(self) -> str:
        """The type of the exception."""
        return self.exception.partition(":")[0]

    def sentence(self) -> str:
        """The exception, its line, and why the call must return."""
        exception = shorten(self.exception, MOST, placeholder=" ...")
        return f"raises {exception} ({self.place}){f': {self.reason}' if self.reason else ''}"

    def assertion(self, observed: str, expected: str = "") -> str:  # noqa: ARG002 - the signature of the base class
        """An expression that is True if there is no exception message."""
        return f"({observed}) is None"
