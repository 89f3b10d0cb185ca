"""Errors: what a user reads in one line, and what a boundary may answer instead of a result."""


class SentinelError(Exception):
    """Bad input from the user: printed as one line, and the exit status with which the command ends."""

    status = 2


class InputError(SentinelError, ValueError):
    r"""A tensor or number that a function of the signal library cannot take, in one line; a ``ValueError`` as well.

    Example:
        >>> from rl_sentinel.core.errors import InputError
        >>> str(InputError("mode is [[1, 2],\n [3, 4]], expected a word"))
        'mode is [[1, 2], [3, 4]], expected a word'
    """

    def __init__(self, message: str) -> None:
        """In one line, however many lines what was given takes to be written down."""
        super().__init__(" ".join(message.split()))


class ArgumentNameError(InputError, TypeError):
    """A call that misspells or leaves out a parameter of a function of the signal library; a ``TypeError`` as well."""


class NotApplicable(Exception):  # noqa: N818 - an answer, not an error: the pair has no verdict
    """The pair cannot be judged here; the text is the reason that reports print."""


class StandInTouched(NotApplicable):
    """A stand-in for an absent package was used while a boundary ran."""


class TargetRaised(Exception):  # noqa: N818 - the target's own answer, judged by the laws
    """An exception that left the target; ``accident`` is the line where it came up, if no code raised it on purpose."""

    def __init__(self, words: str, accident: str = "") -> None:
        """Keep the words, and where the accident happened."""
        super().__init__(words)
        self.accident = accident


class Refused(TargetRaised):
    """The target refused the input in words (``ValueError``, ``AssertionError`` and their kin)."""


class Crashed(TargetRaised):
    """An exception of another kind (``IndexError``, ``RuntimeError``) came up in the target's own code."""


class Unbindable(Exception):  # noqa: N818 - reported by boundary, never raised at a user
    """An expected boundary cannot be found, or its arguments cannot be bound by role."""


class Absent(Unbindable):
    """A module or a name that the target does not have: no fault of a release that never had it."""
