"""Exceptions: one-line errors for users, and the outcomes of a boundary call without a result."""


class SentinelError(Exception):
    """Bad input from the user: printed as one line; ``status`` is the exit status of the command."""

    status = 2


class InputError(SentinelError, ValueError):
    r"""A tensor or number that a function of the signal library cannot accept; also a ``ValueError``.

    Example:
        >>> from rl_sentinel.core.errors import InputError
        >>> str(InputError("mode is [[1, 2],\n [3, 4]], expected a word"))
        'mode is [[1, 2], [3, 4]], expected a word'
    """

    def __init__(self, message: str) -> None:
        """Join the message to one line, even if a printed value has several."""
        super().__init__(" ".join(message.split()))


class ArgumentNameError(InputError, TypeError):
    """A misspelled or missing parameter in a call of the signal library; also a ``TypeError``."""


class NotApplicable(Exception):  # noqa: N818 - an outcome, not an error: the pair is not checked
    """The law cannot be checked at this boundary; the text is the reason that reports print."""


class Undecided(Exception):  # noqa: N818 - an outcome: the law has a subject here, yet what it needs is unknown
    """The law cannot be decided at this boundary; the pair counts as errored, and the text says what to state."""


class StandInTouched(NotApplicable):
    """A stand-in for an absent package was used while a boundary ran."""


class TargetRaised(Exception):  # noqa: N818 - an outcome of the target, which laws check
    """An exception raised by the target; ``accident`` is its line if no code raised it on purpose."""

    def __init__(self, message: str, accident: str = "") -> None:
        """Store the message and the line of the accident."""
        super().__init__(message)
        self.accident = accident


class Refused(TargetRaised):
    """The target refused the input with a message (``ValueError``, ``AssertionError`` and similar types)."""


class Crashed(TargetRaised):
    """An exception of another kind (``IndexError``, ``RuntimeError``) occurred in the target's own code."""


class Unbindable(Exception):  # noqa: N818 - reported per boundary, never shown to a user as an exception
    """An expected boundary cannot be found, or its arguments cannot be bound by role."""


class Absent(Unbindable):
    """A module or name that this release of the target does not have; not an error."""
