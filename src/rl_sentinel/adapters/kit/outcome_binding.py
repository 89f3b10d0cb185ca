"""A bound ``token_reward`` includes the outcome if no other argument has the outcome."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.kit.user_layouts import function_codec, with_outcome_in_batch
from rl_sentinel.core.codec import Codec
from rl_sentinel.search.small_cases import small_cases


def carries_outcome(bind: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether a parameter, a key or a function of the batch has the outcome.

    Args:
        bind: bindings by name, as the user states them.
        names: the names of all parameters or keys; the column of a name without a binding is the known column of this
            name.
    """
    unbound = (name for name in names if bind.get(name, ...) is ...)
    named = any(role_of(name) in ("reward", "token_rewards") for name in unbound)
    return named or any(map(_has_outcome, bind.values()))


def with_outcome(bound: Any) -> Any:  # noqa: ANN401 - any binding, and all bindings in it
    """The binding, with ``token_reward`` replaced by ``token_rewards``, which include the outcome, also in functions.

    Example:
        >>> from rl_sentinel.adapters.kit.outcome_binding import with_outcome
        >>> with_outcome({"items": [{"r": "token_reward[B T]", "m": "mask"}]})
        {'items': [{'r': 'token_rewards[B T]', 'm': 'mask'}]}
    """
    if isinstance(bound, str):
        return re.sub(r"^token_reward\b", "token_rewards", bound)
    if isinstance(bound, Mapping):
        return type(bound)({name: with_outcome(x) for name, x in bound.items()})  # type: ignore[call-arg] # a dict
    if isinstance(bound, list):
        return [with_outcome(x) for x in bound]
    function = callable(bound) and not isinstance(bound, Codec)
    return with_outcome_in_batch(bound, small_cases("default")[0].batch) if function else bound


def _has_outcome(bound: object) -> bool:
    if isinstance(bound, str):
        return re.match(r"reward\b|token_rewards\b", bound) is not None
    if isinstance(bound, Mapping):
        return carries_outcome(bound, bound)
    if isinstance(bound, list):
        return any(map(_has_outcome, bound))
    if isinstance(bound, Codec):
        return "reward" in bound.columns
    return callable(bound) and "reward" in function_codec(bound, small_cases("default")[0].batch).of
