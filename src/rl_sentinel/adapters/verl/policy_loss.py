"""A policy loss of verl as a boundary, and the metrics that it returns."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from rl_sentinel.adapters.kit.result_forms import Detached
from rl_sentinel.adapters.verl.loss_claims import LOGGED
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings

#: PPO's range, in numbers that differ from each other.
RANGE: Settings = {"clip_low": 0.2, "clip_high": 0.3, "ceiling": 4.0}

#: Before there were names, a loss handed its metrics back in this order.
_IN_ORDER = re.compile(r"return pg_loss, (pg_clipfrac, ppo_kl(?:, pg_clipfrac_lower)?)\b")


@cache
def metrics_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the metrics that a loss returns, by its source."""
    source = _source(function)
    in_order = _IN_ORDER.search(source)
    if in_order:
        return tuple(f"actor/{name}" for name in in_order[1].split(", "))
    return tuple(name for name in LOGGED if f'"{name}":' in source)


def loss_outputs(function: Callable[..., Any], logged: Mapping[str, Output]) -> dict[str, Output]:
    """The loss and its metrics at their places: in a table after the loss, or by position in older releases."""
    loss = Output("", "", "loss", at=Use("result")[0])
    in_order = _IN_ORDER.search(_source(function))
    order = [f"actor/{name}" for name in in_order[1].split(", ")] if in_order else []
    places = {name: Use("result")[1 + order.index(name)] if order else Use("result")[1][name] for name in logged}
    return {"loss": loss, **{n: replace(o, at=places[n], form=Detached()) for n, o in logged.items()}}


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(inspect.unwrap(function))
    except OSError:
        return ""
