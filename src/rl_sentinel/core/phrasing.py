"""Format numbers, tensor positions and suggestions for sentences."""

import math
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

#: Numbers of significant digits to try until two different numbers print differently.
_DIGITS = (4, 6, 9, 17)

#: Whole numbers below this one are written in full.
_WHOLE = 1e9

#: Characters of a value that a message shows.
_WIDTH = 60

#: Names that a message lists.
_NAMES = 60

#: Characters of the text of an exception that a message shows.
_REASON_WIDTH = 200

#: The address of an object, which differs from run to run.
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")

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
    """Suggest the closest valid name, or list the valid names, at most 60."""
    names = list(known)
    matches = get_close_matches(word, names, n=1, cutoff=0.6)
    others = f" and {len(names) - _NAMES} others" if len(names) > _NAMES else ""
    return f"the nearest is {matches[0]!r}" if matches else f"expected one of {', '.join(names[:_NAMES])}{others}"


def shortened(value: object) -> str:
    """A value in one line, without addresses of objects, cut after 60 characters.

    Example:
        >>> from rl_sentinel.core.phrasing import shortened
        >>> shortened([1.5]), shortened(object()), len(shortened("a" * 1000))
        ('[1.5]', '<object object>', 63)
    """
    text = _ADDRESS.sub("", " ".join(repr(value).split()))
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."


def reason_of(error: BaseException) -> str:
    r"""An exception in one line, cut after 200 characters; with its type if the text alone does not name the fault.

    Example:
        >>> from rl_sentinel.core.phrasing import reason_of
        >>> reason_of(KeyError("kind")), reason_of(AssertionError()), reason_of(ValueError("one\ntwo"))
        ("KeyError: 'kind'", 'AssertionError', 'one two')
    """
    text, kind = " ".join(str(getattr(error, "strerror", None) or error).split()), type(error).__name__
    if isinstance(error, LookupError | AssertionError) or not text:
        text = f"{kind}: {text}" if text else kind
    return text if len(text) <= _REASON_WIDTH else f"{text[:_REASON_WIDTH]}..."


#: Start of pydantic's text about a bound -> the form of the bound in messages.
_COMPARISONS = {
    "greater than or equal to ": "{} or more",
    "less than or equal to ": "at most {}",
    "greater than ": "more than {}",
}


def expected(message: str) -> str:
    """The end of a message about a value, from pydantic's message.

    Example:
        >>> from rl_sentinel.core.phrasing import expected
        >>> expected("Input should be greater than or equal to 1"), expected("Value error, no such file")
        (', expected 1 or more', ': value error, no such file')
        >>> expected("Tuple should have at least 1 item after validation, not 0")
        ', expected at least 1 item'
    """
    items, after, _ = message.removeprefix("Tuple should have ").partition(" after validation")
    if after:
        return f", expected {items}"
    text = message.removeprefix("Input should be ")
    return f": {message.lower()}" if text == message else f", expected {bound(text)}"


def bound(text: str) -> str:
    """A bound in the words of our messages; any other text unchanged.

    Example:
        >>> from rl_sentinel.core.phrasing import bound
        >>> bound("less than or equal to 2"), bound("a valid integer")
        ('at most 2', 'a valid integer')
    """
    text = text.partition(", unable to parse")[0]
    words = next((words for words in _COMPARISONS if text.startswith(words)), "")
    return _COMPARISONS[words].format(text.removeprefix(words)) if words else text


def _formatted(value: float, digits: int) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
    if value == int(value) and abs(value) < _WHOLE:
        return str(int(value))
    return f"{value:.{digits}g}"
