"""``Answers``: a valid input must give a result instead of an exception."""

import re
from dataclasses import dataclass, field
from textwrap import shorten
from typing import NamedTuple

import torch
from torch import Tensor

from rl_sentinel.core.expectations.base import Expectation, Measured

#: Most characters of an exception in a sentence.
MOST = 120

#: Words of a refusal that names what a value needs.
_NEEDS = r"(?i)\b(requires?|required|needs?|install|installed|enabled?|provide|together|without)\b"


class Listed(NamedTuple):
    """A value that the code lists as allowed for the setting ``name``."""

    name: str
    value: str

    def explains(self, refusal: str) -> bool:
        """Whether a refusal is justified: its message does not name the value, or it says what the value needs.

        Words such as "requires" or "install" decide this. An empty message justifies nothing.

        Example:
            >>> from rl_sentinel.core.expectations import Listed
            >>> full = Listed("kind", "full")
            >>> full.explains("unknown kind full"), full.explains("full needs the logits of all tokens")
            (False, True)
        """
        return bool(refusal) and (self.value not in refusal or re.search(_NEEDS, refusal) is not None)

    def assertion(self, message: str) -> str:
        """A Python expression that computes ``explains``; ``message`` is the expression of the message."""
        needs = f"re.search({_NEEDS!r}, {message}) is not None"
        return f"bool({message}) and ({self.value!r} not in {message} or {needs})"


@dataclass(frozen=True, slots=True, eq=False)
class Answers(Expectation):
    """Expect that a call returns a result.

    ``exception`` is the text of the exception that it raised (empty if none), and ``line`` its ``file:line``.
    ``listed`` is the listed value that the call used, if any: the call may then refuse it, as ``Listed.explains`` says.
    """

    output: str
    exception: str
    line: str = ""
    where: Tensor | None = None
    reason: str = field(default="", kw_only=True)
    listed: Listed | None = field(default=None, kw_only=True)
    key: str = field(default="", kw_only=True)

    def measure(self) -> Measured | None:
        """A distance of 1 if the call raised an exception, else 0."""
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
        return f"raises {exception} ({self.line}){f': {self.reason}' if self.reason else ''}"

    def assertion(self, observed: str, expected: str = "") -> str:  # noqa: ARG002 - the signature of the base class
        """An expression that is True if there is no exception message, or if it justifies the refusal of ``listed``."""
        returned = f"({observed}) is None"
        return f"{returned} or {self.listed.assertion(observed)}" if self.listed else returned
