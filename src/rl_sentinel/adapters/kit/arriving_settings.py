"""Boundaries of functions that pass settings on: they return the value that arrives at each destination."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.value_codecs import AllSettings, Constant
from rl_sentinel.core.boundary import Boundary, Output, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec


def arrives(given: Scalar, arrived: object) -> float:
    """The setting at its destination as a number.

    A numeric setting gives the number that arrived, or infinity if another type arrived. A text gives 1 if the same
    text arrived, else 0.

    A list of one text counts as this text.

    Example:
        >>> from rl_sentinel.adapters.kit.arriving_settings import arrives
        >>> arrives(0.5, 0.5), arrives("null", ["null"]), arrives("null", None)
        (0.5, 1.0, 0.0)
    """
    if isinstance(given, str):
        return float(arrived in (given, [given]))
    return float(arrived) if isinstance(arrived, bool | int | float) else float("inf")


def arriving_outputs(result: Use, places: Mapping[str, str]) -> dict[str, Output]:
    """One output per place: the number that the result has under the name of the place."""
    return {
        place: Output("", "", f"setting.{setting}", at=result[place], form=Number())
        for place, setting in places.items()
    }


def bind_arriving(  # noqa: PLR0913 - the parts of one description
    path: str,
    call: Callable[..., Any],
    arguments: Mapping[str, Codec],
    places: Mapping[str, str],
    *,
    settings: Mapping[str, Settings],
    cite: str,
    reach: str,
    fakes: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
) -> Boundary:
    """The boundary of a call that returns, for each place, the value of the setting that arrives there.

    Args:
        path: the function that passes the settings on.
        call: the call; besides its arguments, it gets ``options`` (the settings) and ``places``.
        arguments: its other arguments.
        places: place -> the setting that arrives there.
        settings: the settings, by name.
        cite: the documentation of the settings.
        reach: how a user sets the settings.
        fakes: dotted path -> the function that replaces the function at this path during the call.
    """
    passed = {**arguments, "options": AllSettings(), "places": Constant(dict(places))}
    return one_call(
        path=path,
        stage="config",
        call=call,
        name="arrived",
        arguments=passed,
        fakes=fakes,
        remembered=True,
        outputs=arriving_outputs(Use("arrived"), places),
        settings=settings,
        claims=claims(cite),
        reach=reach,
    )
