"""Match ``FILE:NAME`` patterns of functions against call traces and dotted paths.

``FILE`` is the end of a path. ``NAME`` is the end of a qualified name, in which ``*`` matches any text. A function that
moved to another package still matches.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath


def entry_matches(entry: str, function: str) -> bool:
    """Whether an entry of the call trace, ``file:line:qualified name``, matches the pattern of a function.

    Example:
        >>> from rl_sentinel.audit.engine.function_filter import entry_matches
        >>> entry_matches("house/losses.py:7:Actor.loss", "losses.py:loss")
        True
    """
    place, name = entry.split(":", 1)[0], entry.split(":", 2)[2]
    file, _, pattern = function.partition(":")
    return f"/{place}".endswith(f"/{file}") and fnmatchcase(f".{name}", f"*.{pattern}")


def path_matches(path: str, function: str) -> bool:
    """Whether the path of a boundary, or of one part of a pipeline, ends with the module and the name of the function.

    Classes may be between the module and the name. False for the pattern ``*``.
    """
    file, _, pattern = function.partition(":")
    if pattern == "*":
        return False
    stem = PurePosixPath(file).stem
    patterns = (f"*.{stem}.{pattern}", f"*.{stem}.*.{pattern}")
    return any(fnmatchcase(f".{part}", name) for part in path.split(" -> ") for name in patterns)


def in_file_of(path: str, functions: Iterable[str]) -> bool:
    """Whether a path relative to the target's root is the file of one of the functions.

    Example:
        >>> from rl_sentinel.audit.engine.function_filter import in_file_of
        >>> in_file_of("house/losses.py", ["losses.py:loss"]), in_file_of("house/my_losses.py", ["losses.py:loss"])
        (True, False)
    """
    return f"/{path}".endswith(tuple(f"/{function.partition(':')[0]}" for function in functions))
