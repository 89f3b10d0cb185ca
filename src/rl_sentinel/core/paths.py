"""Expand and validate paths that users write."""

from pathlib import Path

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import shortened


def expanded(text: str, what: str) -> Path:
    """Convert text to a path; ``~`` is expanded to the home folder.

    Args:
        text: the text from the user.
        what: the option or recipe key with this value.

    Raises:
        SentinelError: if the text is empty, not a path, or names a home folder that does not exist.

    Example:
        >>> from rl_sentinel.core.paths import expanded
        >>> expanded("runs/a", "out")
        PosixPath('runs/a')
        >>> expanded("", "out")
        Traceback (most recent call last):
        rl_sentinel.core.errors.SentinelError: out is '', expected a path: name a file or folder
    """
    if not text.strip() or "\0" in text:
        raise SentinelError(f"{what} is {shortened(text)}, expected a path: name a file or folder")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        fix = "write it without ~, since this home folder does not exist"
        raise SentinelError(f"{what} is {text!r}, expected a path: {fix}") from error
