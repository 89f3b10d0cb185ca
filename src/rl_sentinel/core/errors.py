"""Exceptions: one-line errors for users, and outcomes of calls that return no result."""


class SentinelError(Exception):
    """An error that is printed as one line, such as bad input; ``status`` is the exit status of the command."""

    status = 2


class InputError(SentinelError, ValueError):
    r"""A tensor or number that a function of the signal library cannot accept; also a ``ValueError``.

    Example:
        >>> from rl_sentinel.core.errors import InputError
        >>> str(InputError("mode is [[1, 2],\n [3, 4]], expected a word"))
        'mode is [[1, 2], [3, 4]], expected a word'
    """

    def __init__(self, message: str) -> None:
        """Join the message to one line, even if a printed value has several lines."""
        super().__init__(" ".join(message.split()))


class ArgumentNameError(InputError, TypeError):
    """A misspelled or missing parameter in a call of the signal library; also a ``TypeError``."""


class NotApplicable(Exception):  # noqa: N818 - an outcome, not an error: the law is not checked
    """The law cannot be checked at this boundary; the text is the reason that reports print."""


class Undecided(Exception):  # noqa: N818 - an outcome: the law applies, but a fact that it needs is unknown
    """The law applies but cannot be decided: the verdict is ``errored``, and the text says what the user must state."""


class StandInTouched(NotApplicable):
    """Raised if a stand-in for an absent package was used while a boundary ran."""


class TargetRaised(Exception):  # noqa: N818 - an outcome of the target, which laws check
    """An exception that left the target; ``accident`` is the ``file:line`` that caused it by mistake, or empty."""

    def __init__(self, message: str, accident: str = "") -> None:
        """Store the message and the ``file:line``."""
        super().__init__(message)
        self.accident = accident


class Refused(TargetRaised):
    """The target refused the input with a message (``ValueError``, ``AssertionError`` and similar types)."""


class Crashed(TargetRaised):
    """An exception that is not a refusal, such as ``IndexError``, occurred in the code of the target."""


class Unbindable(Exception):  # noqa: N818 - reported per boundary, never shown to a user as an exception
    """Raised if an expected boundary cannot be found, or if its parameters do not match the columns and settings."""


class Absent(Unbindable):
    """A package, module or name that this release of the target does not have."""
