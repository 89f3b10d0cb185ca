"""The values that a framework lists as allowed for a setting: in docstrings, comments of YAML files, and code."""

import ast
import inspect
import re
import textwrap
from typing import Any

from rl_sentinel.core.type_parameters import parse_source

#: A word in quotes, which may end in a plus sign.
_QUOTED = re.compile(r"""["'`]+(\w[\w.-]*\+?)["'`]+""")

#: The first line of a field in a docstring: ``name (type): ...`` or ``name: ...``.
_FIELD = re.compile(r"\s*(\w+)\s*(?:\([^)]*\))?:(.*)")


def quoted_words(text: str) -> tuple[str, ...]:
    """The quoted words of a text, in order and without repetition.

    Example:
        >>> from rl_sentinel.adapters.kit.listed_options import quoted_words
        >>> quoted_words('Options: "k1", "k3" or "k3+".')
        ('k1', 'k3', 'k3+')
    """
    return tuple(dict.fromkeys(_QUOTED.findall(text)))


def field_words(owner: Any, field: str) -> tuple[str, ...]:  # noqa: ANN401 - a class of the target
    """The words in quotes that the docstring of a class gives for a field.

    Example:
        >>> from rl_sentinel.adapters.kit.listed_options import field_words
        >>> class Config:
        ...     '''Numbers of a loss.
        ...
        ...     Args:
        ...         mode (str): How it is reduced. Options: 'sum',
        ...             'mean'.
        ...         clip (float): not 'sum'
        ...     '''
        >>> field_words(Config, "mode")
        ('sum', 'mean')
    """
    text, inside = "", False
    for line in (inspect.getdoc(owner) or "").splitlines():
        start = _FIELD.fullmatch(line)
        inside = start[1] == field if start else inside and bool(line.strip())
        text += line if inside else ""
    return quoted_words(text)


def comment_words(text: str, key: str) -> tuple[str, ...]:
    r"""The words in quotes in the comment above the first line ``key:`` of a YAML file.

    Example:
        >>> from rl_sentinel.adapters.kit.listed_options import comment_words
        >>> comment_words('# Options: "k1", "k2"\nkind: k1\n', "kind")
        ('k1', 'k2')
    """
    comment = list[str]()
    for line in map(str.strip, text.splitlines()):
        if line.startswith(f"{key}:"):
            return quoted_words(" ".join(comment))
        comment = [*comment, line] if line.startswith("#") else []
    return ()


def assigned_words(owner: Any, name: str) -> tuple[str, ...]:  # noqa: ANN401 - a class or function of the target
    """The strings of the list, tuple or set that the code of a class or function assigns to a name.

    Example:
        >>> from rl_sentinel.adapters.kit.listed_options import assigned_words
        >>> def check(mode):
        ...     allowed = ["sum", "mean"]
        ...     assert mode in allowed
        >>> assigned_words(check, "allowed")
        ('sum', 'mean')
    """
    for node in ast.walk(parse_source(textwrap.dedent(inspect.getsource(owner)))):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            elements = node.value.elts if isinstance(node.value, ast.List | ast.Tuple | ast.Set) else []
            return tuple(e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str))
    return ()
