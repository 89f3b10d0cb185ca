"""Read the tensor axes of a parameter from its annotation (jaxtyping, ``Annotated``, strings, lists) or a docstring."""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Annotated, Any, get_args, get_origin

#: Name of an axis in an annotation, in lower case -> its letter.
LETTERS = {
    **dict.fromkeys(("b", "bs", "batch", "batch_size", "rows", "responses", "num_envs", "envs"), "B"),
    **dict.fromkeys(("t", "l", "s", "seq", "seq_len", "length", "tokens", "time", "response_length", "num_steps"), "T"),
    **dict.fromkeys(("g", "groups", "prompts", "num_prompts"), "G"),
    **dict.fromkeys(("k", "samples", "group_size", "num_samples", "num_generations"), "K"),
    **dict.fromkeys(("n", "total", "nnz", "packed", "total_tokens"), "N"),
    "1": "1",
}

#: Names of the first axis that mean the responses of one prompt; other names of ``K`` mean the whole batch there.
_OF_ONE_PROMPT = ("k", "group_size", "num_generations")

#: Combinations of axes that a binding supports.
KNOWN = ("BT", "TB", "B", "B1", "GK", "GKT", "K", "KT", "N")

#: Layouts of lists, which :func:`axes_of` returns too.
LISTS = ("ragged", "list", "lists")

#: Text that may come between the name of a parameter and its axes in a docstring.
_BEHIND_NAME = (
    r"(?:[`*:=\s-]|\((?:torch\.|np\.)?(?:float|long|bool)?(?:tensor|ndarray)(?:, *optional)?\)"
    r"|\b(?:torch\.|np\.)?(?:float|long|bool)?(?:tensor|ndarray|array)\b"
    r"|\b(?:of|with|shape|shaped|is|are|an?|the|float|int|bool)\b)*"
)

#: The word "shape" and the axes that follow it.
_SHAPE = r"\bshaped?\b(?:[`*:=\s]|\b(?:is|of|as)\b)*(\[[^\])]*\]|\([^\])]*\))"

_QUOTED = re.compile(r"""\[.*,\s*["']([^"']*)["']\s*\]$""", re.DOTALL)
_TENSOR_LIST = re.compile(r"\b(list|Sequence|Iterable)\[[^\]]*Tensor", re.IGNORECASE)
_NUMBER_LIST = re.compile(r"\b(list|Sequence)\[(float|int|bool|str)\]", re.IGNORECASE)
_NUMBER_LISTS = re.compile(r"\b(list|Sequence)\[\s*(list|Sequence)\[(float|int|bool)\]", re.IGNORECASE)


def axes_of(annotation: object) -> str:
    """The axes in an annotation, as letters, or ``"ragged"``, ``"list"`` or ``"lists"``; empty if none are recognized.

    ``KG``, and axes with time that no binding supports, are returned as well: the caller rejects them. The plain text
    ``"T"`` is not read as an axis, because it may be a type variable.

    Example:
        >>> from typing import Annotated
        >>> import torch
        >>> from jaxtyping import Float
        >>> from rl_sentinel.adapters.kit.annotated_axes import axes_of
        >>> axes_of(Float[torch.Tensor, "batch seq"]), axes_of(Annotated[torch.Tensor, "B"]), axes_of("G, K")
        ('BT', 'B', 'GK')
        >>> axes_of(Annotated[torch.Tensor, "T B"])
        'TB'
        >>> axes_of(list[torch.Tensor]), axes_of(list[float]), axes_of(list[list[float]]), axes_of(torch.Tensor)
        ('ragged', 'list', 'lists', '')
    """
    if dims := getattr(annotation, "dim_str", None):
        return _letters(str(dims))
    if get_origin(annotation) is Annotated:
        return next(
            (axes for word in get_args(annotation)[1:] if isinstance(word, str) and (axes := _letters(word))), ""
        )
    text = annotation if isinstance(annotation, str) else str(annotation)
    if quoted := _QUOTED.search(text):
        return _letters(quoted[1])
    if isinstance(annotation, str) and (plain := _letters(text)) and plain != "T":  # T alone is a type variable
        return plain
    if _TENSOR_LIST.search(text):
        return "ragged"
    return "lists" if _NUMBER_LISTS.search(text) else "list" if _NUMBER_LIST.search(text) else ""


def item_class(annotation: object) -> type | None:
    """The dataclass of the items of an annotated list, which has one item per response; None without a dataclass.

    Example:
        >>> from dataclasses import dataclass
        >>> from rl_sentinel.adapters.kit.annotated_axes import item_class
        >>> @dataclass
        ... class Sample:
        ...     reward: float
        >>> item_class(list[Sample]) is Sample, item_class(list[float])
        (True, None)
    """
    if not isinstance(origin := get_origin(annotation), type) or not issubclass(origin, Sequence):
        return None
    return next((one for one in get_args(annotation) if isinstance(one, type) and is_dataclass(one)), None)


def documented_axes(function: Callable[..., Any], name: str) -> str:
    """The axes that the docstring of a function states for a parameter: right after its name, or after "shape".

    The word "shape" is looked for in the entry of the parameter (``name: text``, in any common style), and in a
    docstring that begins with the only parameter. Empty if the docstring states no axes.

    Example:
        >>> from rl_sentinel.adapters.kit.annotated_axes import documented_axes
        >>> def centered(rewards, mask):
        ...     "Center rewards [G, K]; ``mask`` (Tensor): of shape (B, T)."
        >>> documented_axes(centered, "rewards"), documented_axes(centered, "mask")
        ('GK', 'BT')
    """
    others = "|".join(re.escape(one) for one in inspect.signature(function).parameters)
    listed = rf"(?:(?:[`,\s&]|\band\b|\b(?:{others})\b)*:)?"  # "rewards, values: [T, B]" states both
    pattern = rf"(?<!\w){re.escape(name)}(?!\w){listed}{_BEHIND_NAME}(\[[^\])]*\]|\([^\])]*\))"
    text = inspect.getdoc(function) or ""
    stated = re.finditer(pattern, text, re.IGNORECASE)
    behind = next((axes for match in stated if (axes := _documented(match[1]))), "")
    return behind or _axes_of_entry(text, name, rf"[`*]*\b(?:{others})\b[`*]*") or _axes_of_only(function, text, name)


def _axes_of_only(function: Callable[..., Any], text: str, name: str) -> str:
    """The axes after the word "shape", if the docstring begins with the only parameter and states one shape."""
    begins = re.match(rf"[`*]*{re.escape(name)}\b", text, re.IGNORECASE)
    if not begins or [*inspect.signature(function).parameters] != [name]:
        return ""
    return _only_shape(re.split(r"\breturns?\b", text, flags=re.IGNORECASE)[0])


def _only_shape(text: str) -> str:
    """The axes after the word "shape"; empty if the text states no axes, or several different axes."""
    found = re.finditer(_SHAPE, text, re.IGNORECASE)
    axes = {letters for match in found if (letters := _documented(match[1]))}
    return axes.pop() if len(axes) == 1 else ""


def _axes_of_entry(text: str, name: str, another: str) -> str:
    """The axes after the word "shape" in the entry of a parameter; empty if the entry states no axes, or several.

    An entry is a line that begins with the name and a colon, and the lines below it that are indented further. The line
    may begin with several names, as in ``rewards, values:``; ``another`` is the pattern of such a name.
    """
    comma = r"(?:[ \t]*(?:,|&|\band\b|/))+[ \t]*"
    begin = rf"^(?P<indent>[ \t]*)(?:[-*] )?(?:[:@]param (?:[\w.]+ )?)?(?:{another}{comma})*"
    begin += rf"[`*]*{re.escape(name)}[`*]*(?:{comma}{another})*[ \t]*(?:\([^)\n]*\))?[ \t]*:"
    entry = re.search(rf"{begin}(?P<rest>[^\n]*(?:\n(?P=indent)[ \t]+[^\n]*)*)", text, re.MULTILINE)
    return _only_shape(entry["rest"]) if entry else ""


def _documented(brackets: str) -> str:
    """The letters of the axes in brackets.

    A single T or K in parentheses without a comma is no axis: the ``(s)`` of ``reward(s)`` is a plural.
    """
    letters = _letters(brackets[1:-1].removesuffix(","))
    return "" if letters in ("T", "K") and brackets[0] == "(" and "," not in brackets else letters


def _letters(dims: str) -> str:
    """The letters of axis names; empty if no binding supports them.

    KG and axes with time are returned although no binding supports them: the caller rejects them.
    """
    names = re.split(r"[\s,]+", dims.strip(" []()").lower())
    names = [name.lstrip("*#") for name in names]
    letters = "".join(LETTERS.get(name, "?") for name in names)
    if letters in ("K", "KT") and names[0] not in _OF_ONE_PROMPT:
        letters = letters.replace("K", "B")  # the samples of a batch
    stated = letters in (*KNOWN, "KG") or ("T" in letters and "?" not in letters)
    return letters if stated else ""
