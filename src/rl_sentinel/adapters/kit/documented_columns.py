"""What the docstring of a function says that a parameter of unknown name holds, as a proposal for its binding."""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

from rl_sentinel.adapters.kit.annotated_axes import documented_axes
from rl_sentinel.adapters.kit.bind_text import AXES, WRITTEN_AXES, column_of
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.core.batch import COLUMNS

#: The most words of a known name.
_MOST_WORDS = 4


def documented_columns(function: Callable[..., Any], names: Iterable[str]) -> dict[str, str]:
    """Parameter -> the text of a binding, for those that a docstring describes with a known name.

    Example:
        >>> from rl_sentinel.adapters.kit.documented_columns import documented_columns
        >>> def centred(R, colour):
        ...     "R: [G, K] rewards, one row per question; colour: of the plot"
        >>> documented_columns(centred, ["R", "colour"])
        {'R': 'reward[G K]'}
    """
    text = inspect.getdoc(function) or ""
    found = {name: column for name in names if (column := _column_in(_entry(text, name)))}
    written = dict(zip(AXES, WRITTEN_AXES, strict=True))
    axes = {name: written.get(documented_axes(function, name), "") for name in found}
    return {name: f"{column}[{axes[name]}]" if axes[name] else column for name, column in found.items()}


def _entry(text: str, name: str) -> str:
    """The clause behind a name and a colon, without its brackets."""
    entry = re.search(rf"(?<!\w){re.escape(name)}`*[ \t]*(?:\([^)\n]*\))?[ \t]*:([^\n]*)", text)
    plain = re.sub(r"\[[^\]]*\]|\([^)]*\)", " ", entry[1] if entry else "").strip()
    return re.split(r"[,;.]", plain)[0]


def _column_in(clause: str) -> str:
    """The column of the first known name in a clause, the longest that begins at its word; empty without one."""
    words = re.findall(r"[a-z]+", clause.lower())
    for start in range(len(words)):
        for end in range(min(start + _MOST_WORDS, len(words)), start, -1):
            name = "_".join(words[start:end])
            if name in ("prompt_ids", "prompt_id"):  # of an unknown parameter: one per response
                return "group"
            if role_of(name) and column_of(name) in COLUMNS:
                return column_of(name)
    return ""
