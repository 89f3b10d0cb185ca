"""Samples that lack a part, and whether a framework refuses them."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from rl_sentinel.core.errors import NotApplicable

T = TypeVar("T")


def unless_refused(call: Callable[[], T]) -> T | None:
    """The result of a call; None if the target raises an exception.

    An exception counts as a refusal, because it stops the run or drops the sample, so that nothing incomplete trains.
    Only ``NotApplicable``, which is no exception of the target, is raised.

    Example:
        >>> from rl_sentinel.adapters.kit.incomplete_rows import unless_refused
        >>> unless_refused(lambda: [1, 2].index(2)), unless_refused(lambda: [1, 2].index(3))
        (1, None)
    """
    try:
        return call()
    except NotApplicable:
        raise
    except Exception:  # noqa: BLE001 - any exception is a refusal
        return None


def shortened(column: Sequence[Sequence[T]], row: int) -> list[Sequence[T]]:
    """A column of a list per row, in which one row lacks its last number.

    Example:
        >>> from rl_sentinel.adapters.kit.incomplete_rows import shortened
        >>> shortened([[1, 2], [3, 4]], 1)
        [[1, 2], [3]]
    """
    return [numbers[:-1] if place == row else numbers for place, numbers in enumerate(column)]
