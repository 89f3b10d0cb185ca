"""Read from a docstring which column a parameter of unknown name holds, to propose a binding."""

import inspect
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from rl_sentinel.adapters.kit.annotated_axes import documented_axes
from rl_sentinel.adapters.kit.bind_text import AXES, WRITTEN_AXES, column_of
from rl_sentinel.adapters.kit.parameter_words import POLICIES
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.core.batch import COLUMNS

#: The most words of a known name.
_MOST_WORDS = 4


#: Words before the name of a quantity that do not change the quantity.
_FILLERS = frozenset({"a", "an", "the", "one", "each", "its", "tensor", "array", "list", "float", "int", "long", "of"})

#: Words that may follow the name of a quantity; a noun there means another quantity, as in "reward model".
_FOLLOWING = frozenset(
    {"of", "for", "per", "from", "with", "under", "at", "in", "by", "to", "on", "as", "one", "each", "before", "after"}
    | {"tensor", "tensors", "when", "that", "which", "is", "are"}
)


def documented_columns(
    function: Callable[..., Any], names: Iterable[str], *, only_clear: bool = False
) -> dict[str, str]:
    """Parameter -> the text of a binding, for parameters that a docstring describes with a known name.

    Args:
        function: the function.
        names: names of its parameters.
        only_clear: use only entries that begin with the known name, without a noun after it.

    Example:
        >>> from rl_sentinel.adapters.kit.documented_columns import documented_columns
        >>> def centered(R, color):
        ...     "R: [G, K] rewards, one row per question; color: of the plot"
        >>> documented_columns(centered, ["R", "color"])
        {'R': 'reward[G K]'}
    """
    text = inspect.getdoc(function) or ""
    found = {name: column for name in names if (column := _column_in(_entry(text, name), only_clear=only_clear))}
    written = dict(zip(AXES, WRITTEN_AXES, strict=True))
    axes = {name: written.get(documented_axes(function, name), "") for name in found}
    return {name: f"{column}[{axes[name]}]" if axes[name] else column for name, column in found.items()}


def _entry(text: str, name: str) -> str:
    """The first clause after a name and a colon that has a meaningful word, without its brackets.

    It ends where the entry of another parameter begins, as in ``A: [B]; mask: [B, T]``.
    """
    entry = re.search(rf"(?<!\w){re.escape(name)}`*[ \t]*(?:\([^)\n]*\))?[ \t]*:([^\n]*)", text)
    plain = re.sub(r"\[[^\]]*\]|\([^)]*\)", " ", entry[1] if entry else "")
    clauses = re.split(r"[;.:]", re.sub(r"\w+`*[ \t]*:", ":", plain))[0]
    return next((clause for clause in clauses.split(",") if {*_words(clause)} - _FILLERS), "")


def _words(clause: str) -> list[str]:
    return re.findall(r"[a-z]+", clause.lower())


def _column_in(clause: str, *, only_clear: bool) -> str:
    """The column of the first known name in a clause (the longest one at that word); empty without a known name.

    With ``only_clear``, the clause must begin with the known name, and no noun may follow the name.
    """
    words = _words(clause)
    first = next((i for i, word in enumerate(words) if word not in _FILLERS), len(words))
    for start in [first] if only_clear else range(len(words)):
        for end in range(min(start + _MOST_WORDS, len(words)), start, -1):
            if only_clear and end < len(words) and words[end] not in _FOLLOWING:
                continue
            name = "_".join(words[start:end])
            if name in ("prompt_ids", "prompt_id"):  # of an unknown parameter: one per response
                return "group"
            if role_of(name) and column_of(name) in COLUMNS:
                return _of_policy(column_of(name), words[end:])
    return ""


def _of_policy(column: str, behind: Collection[str]) -> str:
    """The column; for ``logprob``, the log-prob column of the other policy that the words after it name.

    Empty if the words name several policies.
    """
    named = [policy for policy, its in POLICIES.items() if its & {*behind}] if column == "logprob" else []
    return (named or [column])[0] if len(named) < 2 else ""
