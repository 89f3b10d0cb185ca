"""Format numbers, tensor positions and suggestions for sentences."""

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

#: Numbers of significant digits to try until two different numbers print differently.
_DIGITS = (4, 6, 9, 17)

#: Whole numbers below this one are written in full.
_WHOLE = 1e9

#: Characters of a value that a message shows.
_WIDTH = 60

#: Name of each axis of a position: row, token, and word of the vocabulary.
_AXES = ("row", "token", "word")


def number(value: float) -> str:
    """Format a number with four significant digits; whole numbers below a billion in full.

    Example:
        >>> from rl_sentinel.core.phrasing import number
        >>> number(-0.70710678), number(-10000.0), number(float("nan"))
        ('-0.7071', '-10000', 'NaN')
    """
    return _formatted(float(value), _DIGITS[0])


def two_numbers(a: float, b: float) -> tuple[str, str]:
    """Format two numbers with enough digits to show that they differ.

    Example:
        >>> from rl_sentinel.core.phrasing import two_numbers
        >>> two_numbers(1.0, 1.00001)
        ('1', '1.00001')
    """
    pairs = [(_formatted(float(a), digits), _formatted(float(b), digits)) for digits in _DIGITS]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def at(cell: Sequence[int]) -> str:
    """A position as text such as `` at row 1``, with a leading space; empty for a scalar.

    Example:
        >>> from rl_sentinel.core.phrasing import at
        >>> at((1, 0)), at((1,)), at(())
        (' at row 1, token 0', ' at row 1', '')
    """
    return f" at {coordinates(cell)}" if cell else ""


def of(output: str, cell: Sequence[int]) -> str:
    """An output and a cell as text, such as ``loss of row 1``.

    Example:
        >>> from rl_sentinel.core.phrasing import of
        >>> of("advantage", (0,)), of("advantage", (0, 2)), of("loss", ())
        ('advantage of row 0', 'advantage at row 0, token 2', 'loss')
    """
    return f"{output} of {coordinates(cell)}" if len(cell) == 1 else f"{output}{at(cell)}"


def coordinates(cell: Sequence[int]) -> str:
    """A position as text, such as ``row 1, token 0``; empty for a scalar."""
    return ", ".join(f"{axis} {index}" for axis, index in zip(_AXES, cell, strict=False))


def nearest(word: str, known: Iterable[str]) -> str:
    """Suggest the closest valid name, or list all valid names."""
    names = list(known)
    matches = get_close_matches(word, names, n=1, cutoff=0.6)
    return f"the nearest is {matches[0]!r}" if matches else f"expected one of {', '.join(names)}"


def shortened(value: object) -> str:
    """A value in one line, cut after 60 characters.

    Example:
        >>> from rl_sentinel.core.phrasing import shortened
        >>> shortened([1.5]), len(shortened("a" * 1000))
        ('[1.5]', 63)
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."


def _formatted(value: float, digits: int) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    if value == int(value) and abs(value) < _WHOLE:
        return str(int(value))
    return f"{value:.{digits}g}"
