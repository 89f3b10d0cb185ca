"""Bind a parameter of unknown name if its docstring or common usage leaves no doubt about its column."""

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from rl_sentinel.adapters.kit.documented_columns import documented_columns
from rl_sentinel.core.boundary import Stage

#: Stage -> letter -> the column, or number, for which papers and notebooks use the letter.
_LETTERS: Mapping[str, Mapping[str, str]] = {
    "policy-loss": {"A": "advantage", "A_hat": "advantage"},
    "advantage": {
        **dict.fromkeys(("R", "r"), "reward"),
        **dict.fromkeys(("G", "K", "k"), "num_generations"),
    },
}


def evident_columns(
    function: Callable[..., Any], stage: Stage, unknown: Collection[str], taken: AbstractSet[str]
) -> dict[str, str]:
    """Parameter -> the text of a binding, for the parameters in ``unknown`` whose column is clear.

    A column is clear if the entry of a docstring begins with a known name (``R: [G, K], the reward of each answer``),
    if the name is the usual letter of a column of this stage (unless values or prompt ids make it ambiguous), or if a
    normalization with a mask has only this unknown parameter. A column that several parameters would get is not chosen
    for any of them.

    Args:
        function: the function.
        stage: its stage.
        unknown: names of its parameters that are not known.
        taken: columns of its other parameters; they are never chosen again.

    Example:
        >>> from rl_sentinel.adapters.kit.evident_columns import evident_columns
        >>> evident_columns(lambda logp, logp_old, A, M: A, "policy-loss", ["A", "M"], {"logprob", "old_logprob"})
        {'A': 'advantage'}
    """
    found = documented_columns(function, unknown, only_clear=True)
    letters = _LETTERS.get(stage, {})
    if stage == "advantage" and taken & {"value", "group"}:  # then R may be per token, and G or K any number
        letters = {name: column for name, column in letters.items() if column == "reward" and "value" not in taken}
    found = {name: letters[name] for name in unknown if name in letters} | found
    if stage == "normalize" and "mask" in taken and len(unknown) == 1:
        found = dict.fromkeys(unknown, "advantage[B T]") | found
    columns = [binding.partition("[")[0] for binding in found.values()]
    return {
        name: binding
        for (name, binding), column in zip(found.items(), columns, strict=True)
        if column not in taken and columns.count(column) == 1
    }


def notes_on(evident: Mapping[str, str]) -> list[str]:
    """One line per parameter that was bound although the user did not state it."""
    return [
        f'{name} was passed as {binding}: if it is something else, bind it, as in bind={{"{name}": ...}}'
        for name, binding in evident.items()
    ]
