"""Outputs of verl's policy losses: the loss, and the metrics that it returns, in the form of each release."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rl_sentinel.adapters.kit.result_forms import Detached
from rl_sentinel.adapters.source_reads import remembered
from rl_sentinel.adapters.verl.loss_claims import LOGGED
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings

#: Clip range of PPO, with three different numbers.
RANGE: Settings = {"clip_low": 0.2, "clip_high": 0.3, "ceiling": 4.0}

#: In older releases a loss returns its metrics as a tuple in this order.
_IN_ORDER = re.compile(r"return pg_loss, (pg_clipfrac, ppo_kl(?:, pg_clipfrac_lower)?)\b")


@remembered
def metrics_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the metrics of :data:`LOGGED` that a loss returns, found in its source."""
    source = _source(function)
    in_order = _IN_ORDER.search(source)
    if in_order:
        return tuple(f"actor/{name}" for name in in_order[1].split(", "))
    return tuple(name for name in LOGGED if f'"{name}":' in source)


def loss_outputs(function: Callable[..., Any], logged: Mapping[str, Output]) -> dict[str, Output]:
    """The outputs for loss and metrics: metrics are in a dict after the loss, or in a tuple in older releases."""
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
