"""Format numbers, counts and wrapped lines for reports."""

import textwrap
from collections.abc import Sequence
from typing import Any

#: Columns of a text report.
WIDTH = 80


def counted(number: int, singular: str, plural: str = "") -> str:
    """A number with its noun in singular or plural.

    Example:
        >>> from rl_sentinel.report.formatting import counted
        >>> counted(1, "pair"), counted(0, "pair"), counted(2, "boundary", "boundaries")
        ('1 pair', '0 pairs', '2 boundaries')
    """
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def short_name(boundary: str) -> str:
    """A boundary without its packages; methods keep the name of their class.

    Example:
        >>> from rl_sentinel.report.formatting import short_name
        >>> short_name("verl.trainer.core_algos.agg_loss"), short_name("trl.a.Trainer.step -> trl.b.loss")
        ('agg_loss', 'Trainer.step -> loss')
    """
    return " -> ".join(map(_last_names, boundary.split(" -> ")))


def _last_names(path: str) -> str:
    *_, owner, name = ["", *path.split(".")]
    return f"{owner}.{name}" if owner[:1].isupper() else name


def one_line(text: str, width: int = 200) -> str:
    r"""Shorten a text to one line of at most ``width`` characters.

    Example:
        >>> from rl_sentinel.report.formatting import one_line
        >>> one_line("no\n  such   thing", 10)
        'no such...'
    """
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 3].rstrip()}..."


def wrapped(text: str, *, indent: str = "", hanging: str = "", lines: int = 0) -> list[str]:
    """Lines of at most ``WIDTH`` columns; a word that is longer, such as a path, is not broken.

    Args:
        text: one paragraph.
        indent: prefix of the first line.
        hanging: prefix of all further lines.
        lines: the maximum number of lines; 0 for all. A text that is cut off ends in ``...``.
    """
    wrapped_lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    if not lines or len(wrapped_lines) <= lines:
        return wrapped_lines
    last = wrapped_lines[lines - 1]
    if len(last) > WIDTH - 4:
        last = last[: WIDTH - 4].rpartition(" ")[0]
    return [*wrapped_lines[: lines - 1], f"{last} ..."]


def two_values(a: Any, b: Any) -> tuple[str, str]:  # noqa: ANN401 - JSON
    """Two nested lists of numbers as text, with enough significant digits to show that they differ, at most 10.

    Example:
        >>> from rl_sentinel.report.formatting import two_values
        >>> two_values([0.125], [0.125025])
        ('[0.125]', '[0.125025]')
    """
    pairs = [(numbers(a, digits=digits), numbers(b, digits=digits)) for digits in (4, 7, 10)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def numbers(value: Any, mark: Sequence[int] | None = None, text: str = "", *, digits: int = 4) -> str:  # noqa: ANN401 - JSON
    """Nested lists of numbers as short text; the cell at the index ``mark`` is written as ``text``.

    Example:
        >>> from rl_sentinel.report.formatting import numbers
        >>> numbers([[0.5, 1.0], [True, False]]), numbers([0.0, 1.0], mark=[1], text="1 -> 2")
        ('[[0.5, 1], [1, 0]]', '[0, 1 -> 2]')
    """
    if mark is not None and not mark:
        return text
    if isinstance(value, list):
        marks = [mark[1:] if mark is not None and mark[0] == n else None for n in range(len(value))]
        inner = [numbers(v, inside, text, digits=digits) for v, inside in zip(value, marks, strict=True)]
        return "[" + ", ".join(inner) + "]"
    if isinstance(value, bool):
        return str(int(value))
    return f"{value + 0.0:.{digits}g}" if isinstance(value, float) else str(value)  # -0.0 + 0.0 is 0.0
