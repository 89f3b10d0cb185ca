"""Choose the layout of arguments with which a function computes the formula that it claims."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice

from rl_sentinel.adapters.kit.function_arguments import Arguments
from rl_sentinel.adapters.kit.layout_trial import (
    PER_TOKEN,
    accepts,
    changes,
    mixes_rows,
    rebind,
    require_documented,
)
from rl_sentinel.adapters.kit.number_fit import with_fitted_numbers
from rl_sentinel.adapters.kit.number_trial import fits_formula
from rl_sentinel.adapters.kit.numbers_in_code import Literals
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.codec import Codec
from rl_sentinel.formulas.temporal import TEMPORAL

#: Maximum number of other bindings that are compared.
_MOST = 24


def layout_of_formula(
    target: Target,
    build: Callable[[Mapping[str, Codec]], Boundary],
    arguments: Arguments,
    chosen: Boundary,
    literals: Literals,
) -> Boundary:
    """The chosen boundary, or a boundary with other axes if the function computes its formula only with these axes.

    Axes that are not stated may be wrong: a sound function of rewards ``[G, K]`` often accepts ``[B]``, too. Only
    advantages are compared in this way: a loss that averages over the wrong axis of ``[B, T]`` is right for ``[N]``.

    Raises:
        Unbindable: if these other axes contradict a docstring.
    """
    claimed = build(arguments.codecs).claims.algorithm
    if claimed is None or chosen.stage != "advantage" or not arguments.open_axes or fits_formula(target, chosen):
        return chosen
    per_token = [path for path, column in arguments.open_axes.items() if column in PER_TOKEN]
    tried = islice(changes(arguments, chosen), _MOST)
    others = [c for c in tried if not any("[" in c.get(p, "") for p in per_token) and not _is_packed(c)]
    if value_of(claimed) in TEMPORAL:
        others.insert(0, _time_first(arguments))
    for changed in others:
        other = build(rebind(arguments.codecs, changed))
        if not accepts(target, other) or mixes_rows(target, other):
            continue
        fitted = with_fitted_numbers(target, other, literals)
        if fits_formula(target, fitted):
            require_documented(arguments, changed, f"computes {value_of(claimed)} with")
            notes = [
                f"{path} was passed as {text}, with which the function computes {value_of(claimed)}; "
                f'state it with bind={{"{path}": "{text}"}}'
                for path, text in changed.items()
            ]
            return replace(fitted, notes=(*fitted.notes, *notes))
    return chosen


def _is_packed(changed: Mapping[str, str]) -> bool:
    """Whether a column has the tokens of all responses end to end, or in a list."""
    return any(text.endswith(("[N]", "[ragged]")) for text in changed.values())


def _time_first(arguments: Arguments) -> dict[str, str]:
    """All columns of tokens with the time axis first, as for environments that step together."""
    columns = {path: column.partition("[")[0] for path, column in arguments.open_axes.items()}
    return {
        path: f"{'token_rewards' if column == 'reward' else column}[T B]"
        for path, column in columns.items()
        if column in PER_TOKEN | {"reward", "token_rewards"}
    }
