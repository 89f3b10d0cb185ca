"""Check that a user's function can be called with keyword arguments."""

import inspect
from collections.abc import Mapping

from rl_sentinel.adapters.kit.roles import role_of

#: Kinds of parameters that take any more arguments.
MORE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def takes_more(parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Whether a function takes keyword arguments of any name."""
    return any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def not_callable_by_name(parameters: Mapping[str, inspect.Parameter]) -> str:
    """The reason why a function cannot be called with keyword arguments; empty if it can."""
    if next(iter(parameters), "") == "self" and not role_of("self"):
        return (
            "is a method, expected a function: write a function that creates the object and calls the method, "
            "as in def mine(rewards, mask): return K().m(rewards, mask)"
        )
    positional = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    if positional:
        names = ", ".join(positional)
        return f"takes {names} by position only, expected parameters by name: remove the / after {positional[-1]}"
    if parameters and all(p.kind in MORE for p in parameters.values()):
        taken = ", ".join(str(p) for p in parameters.values())
        fix = "name the parameters, or decorate the wrapper with functools.wraps"
        return f"takes {taken}, expected parameters by name: {fix}"
    return ""
