"""``Refuses``: invalid settings must be refused, and valid settings accepted."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from rl_sentinel.core.expectations.base import Expectation, Measured


class Attempt(NamedTuple):
    """One attempt to use a setting or a batch.

    It has the reason why it must be refused or accepted, and the text of the refusal (None without a refusal).
    """

    name: str
    reason: str
    refusal: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Refuses(Expectation):
    """Expect that every attempt is refused with a message or, with ``accepts``, that every attempt is accepted."""

    output: str
    attempts: tuple[Attempt, ...]
    accepts: bool = False
    where: Tensor | None = None
    key: str = field(default="", kw_only=True)

    def measure(self) -> Measured | None:
        """A distance of 1 if an attempt has the wrong result, else 0; None without attempts."""
        return Measured(float(bool(self.broken().any())), 0.0) if self.attempts else None

    def broken(self) -> Tensor:
        """True for each attempt with the wrong result."""
        return torch.tensor([(attempt.refusal is not None) == self.accepts for attempt in self.attempts], device="cpu")

    def sentence(self) -> str:
        """The attempts with the wrong result, each with its reason and, if it was refused, the message."""
        wrong = [attempt for attempt, broken in zip(self.attempts, self.broken().tolist(), strict=True) if broken]
        listed = "; ".join(f"{a.name} ({a.reason}{f': {a.refusal}' if a.refusal else ''})" for a in wrong)
        fault = "refused, but must be accepted" if self.accepts else "accepted, but must be refused"
        return f"{fault}: {listed}"

    def assertion(self, observed: str, expected: str = "") -> str:  # noqa: ARG002 - the signature of the base class
        """A Python expression: the attempt was refused with a message or, with ``accepts``, it was not refused."""
        return f"({observed}) is {'None' if self.accepts else 'not None'}"
