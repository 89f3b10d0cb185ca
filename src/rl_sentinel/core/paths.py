"""Paths as users write them."""

from pathlib import Path

from rl_sentinel.core.errors import SentinelError


def expanded(text: str, what: str) -> Path:
    """The path that a word names, with ``~`` for a home.

    Args:
        text: as the user gave it.
        what: the option or the recipe's key that it was given to.

    Raises:
        SentinelError: if it is empty, no path, or of a home that is not there.

    Example:
        >>> from rl_sentinel.core.paths import expanded
        >>> expanded("runs/a", "out")
        PosixPath('runs/a')
        >>> expanded("", "out")
        Traceback (most recent call last):
        rl_sentinel.core.errors.SentinelError: out is '', expected a path: name one
    """
    if not text.strip() or "\0" in text:
        raise SentinelError(f"{what} is {text!r}, expected a path: name one")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise SentinelError(f"{what} is {text!r}, expected a path: there is no such home, name another") from error
