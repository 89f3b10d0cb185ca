"""Remember functions of the target in which a call hung, so that the next such call is stopped sooner.

A call is not stopped because it enters such a function, but only if the function still runs after a time that is far
longer than a normal call on a few rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from rl_sentinel.audit.sandbox import limits


@dataclass(frozen=True, slots=True)
class Time:
    """Seconds of processor time and of wall-clock time."""

    cpu: float
    clock: float

    def __sub__(self, other: Self) -> "Time":
        return Time(self.cpu - other.cpu, self.clock - other.clock)

    def doubled(self) -> "Time":
        """Twice this time."""
        return Time(2 * self.cpu, 2 * self.clock)


@dataclass(slots=True)
class Suspects:
    """Functions, as ``file:first line``, in which a call exceeded its processor time or its wall-clock time."""

    spinning: set[str] = field(default_factory=set)
    sleeping: set[str] = field(default_factory=set)

    def add(self, stack: Sequence[str], *, spins: bool) -> str:
        """Remember the innermost function of a call that hung, and return its name (empty if unknown)."""
        if not stack:
            return ""
        (self.spinning if spins else self.sleeping).add(stack[0])
        return stack[0]

    def should_read_stack(self, call: Time, after: Time) -> bool:
        """Whether to read the stack of a call: an earlier call hung, and this call has lasted for the time ``after``.

        Processor time counts if an earlier call was spinning, wall-clock time if one was sleeping.
        """
        spins = bool(self.spinning) and call.cpu >= after.cpu
        return spins or (bool(self.sleeping) and call.clock >= after.clock)

    def recognize(self, stack: Sequence[str], call: Time) -> str:
        """The innermost suspect on the stack, if the call has lasted longer than a normal call; else an empty text."""
        spins = self.spinning if call.cpu >= limits.SUSPECT_CPU_SECONDS else set[str]()
        sleeps = self.sleeping if call.clock >= limits.SUSPECT_CLOCK_SECONDS else set[str]()
        return next((place for place in stack if place in spins | sleeps), "")
