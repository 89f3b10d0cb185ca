"""``CLAIMS``: what the module of a recipe's function states about it."""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import ismethod
from typing import Any

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.user_code import describe, import_module_of


def stated_claims(table: str, name: str, function: Callable[..., Any]) -> dict[str, str]:
    """Claim -> value, from ``CLAIMS`` of the module that the recipe names, or else of the function's own module.

    ``CLAIMS`` may have a dict for each function, by its name. The result is empty without ``CLAIMS``.

    Args:
        table: the table of the recipe.
        name: the name of the function there.
        function: the function.

    Raises:
        SentinelError: if ``CLAIMS`` is not a dict of texts.
    """
    of_code: Mapping[str, Any] = getattr(_plain(function), "__globals__", {})
    of_recipe = vars(import_module_of(table, name)) if ":" in name else {}
    claims = of_recipe.get("CLAIMS", of_code.get("CLAIMS", {}))
    if isinstance(claims, Mapping):
        own = claims.get(name.rpartition(":")[2])
        claims = own if isinstance(own, Mapping) else {k: v for k, v in claims.items() if not isinstance(v, Mapping)}
    wrong = [one for one in (claims.items() if isinstance(claims, Mapping) else [claims]) if not _is_text(one)]
    if wrong:
        found = describe(claims) if wrong == [claims] else f"{wrong[0][0]!r}: {describe(wrong[0][1])}"
        raise SentinelError(
            f"{table} {name!r} has CLAIMS with {found}, expected a dict of texts, such as "
            '{"algorithm": "grpo"}: fix CLAIMS in the module'
        )
    return dict(claims)


def _is_text(item: object) -> bool:
    return isinstance(item, tuple) and all(isinstance(part, str) for part in item)


def _plain(function: Any) -> Any:  # noqa: ANN401 - a function, or an object that is called like one
    """The function inside partials and decorators; for a callable object, its ``__call__``."""
    while True:
        if isinstance(function, partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif not hasattr(function, "__globals__") and ismethod(getattr(function, "__call__", None)):  # noqa: B004 - its code
            function = function.__call__
        else:
            return function
