"""Bind parameters of unknown name in a user's function, if their meaning is clear; otherwise ask the user."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rl_sentinel.adapters.kit.argument_messages import unknown_message
from rl_sentinel.adapters.kit.documented_columns import documented_columns
from rl_sentinel.adapters.kit.evident_columns import evident_columns
from rl_sentinel.adapters.kit.function_arguments import Arguments
from rl_sentinel.adapters.kit.layout_trial import all_codecs
from rl_sentinel.adapters.kit.parameter_uses import plain_uses
from rl_sentinel.adapters.kit.refused_layouts import codec_paths
from rl_sentinel.core.claims import Claims, value_of
from rl_sentinel.core.codec import Codec
from rl_sentinel.formulas.temporal import TEMPORAL


def evident_bindings(function: Callable[..., Any], claims: Claims, arguments: Arguments) -> dict[str, str]:
    """Bindings of parameters whose meaning is clear, but not from their names alone.

    Empty if the meaning of any unknown name is not clear.

    Args:
        function: the function.
        claims: what the user claims about it.
        arguments: its arguments by their names.
    """
    codecs = dict(codec_paths(arguments.codecs))
    found = _of_unknown(function, arguments) if arguments.unknown else {}
    if found is None:
        return {}
    if arguments.stage == "policy-loss":
        found |= _policy_of_the_rollout(codecs)
    if arguments.stage == "advantage" and "reward" not in {binding.partition("[")[0] for binding in found.values()}:
        found |= _returns_as_rewards(codecs, claims)
    return found


def _of_unknown(function: Callable[..., Any], arguments: Arguments) -> dict[str, str] | None:
    """The binding of each unknown parameter; None if it is not evident for all of them.

    Never evident are attributes of an object (``batch.mask``), and parameters of a callable that is not a function.
    """
    if not inspect.isroutine(function) or any("." in one for one in arguments.unknown):
        return None
    taken = frozenset[str]().union(*(codec.columns for codec in all_codecs(arguments.codecs.values())))
    found = evident_columns(function, arguments.stage, arguments.unknown, taken)
    return found if len(found) == len(arguments.unknown) else None


def _policy_of_the_rollout(codecs: Mapping[str, Codec]) -> dict[str, str]:
    """Bind log-probs in the batch of a loss to the old policy, if another parameter has the current log-probs."""
    held = [path for path, codec in codecs.items() if codec.columns == {"logprob"}]
    others = {column for codec in codecs.values() for column in codec.columns}
    inside = [path for path in held if "." in path]
    return {inside[0]: "old_logprob"} if len(held) == 2 and len(inside) == 1 and "old_logprob" not in others else {}


def _returns_as_rewards(codecs: Mapping[str, Codec], claims: Claims) -> dict[str, str]:
    """Bind the only parameter with a name of returns to the outcome.

    This requires a claimed algorithm that needs one outcome per response, and no parameter with rewards or values.
    """
    algorithm = value_of(claims.algorithm)
    named = [path for path, codec in codecs.items() if codec.columns == {"returns"}]
    others = {column for codec in codecs.values() for column in codec.columns} & {"reward", "token_reward", "value"}
    if algorithm is None or algorithm in TEMPORAL or len(named) != 1 or others:
        return {}
    return {named[0]: "reward"}


def unknown_names(name: str, function: Callable[..., Any], arguments: Arguments) -> str:
    """The message that asks for a binding of each unknown parameter."""
    unknown = {path: path in arguments.attributes for path in arguments.unknown}
    documented = documented_columns(function, unknown)
    return unknown_message(name, unknown, all_codecs(arguments.codecs.values()), plain_uses(function), documented)
