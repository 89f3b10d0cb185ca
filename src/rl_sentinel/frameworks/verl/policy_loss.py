"""A policy loss of verl as a boundary, and what it hands back."""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims
from rl_sentinel.frameworks.verl.loss_claims import LOGGED

#: PPO's range, in numbers that differ from each other.
RANGE: Settings = {"clip_low": 0.2, "clip_high": 0.3, "ceiling": 4.0}

#: Before there were names, a loss handed its metrics back in this order.
_IN_ORDER = re.compile(r"return pg_loss, (pg_clipfrac, ppo_kl(?:, pg_clipfrac_lower)?)\b")


def boundary(  # noqa: PLR0913 - a loss has these parts
    path: str,
    call: Callable[[Batch, Settings], Mapping[str, Tensor]],
    said: Claims,
    settings: Mapping[str, Settings],
    reach: str,
    logged: Mapping[str, Output],
) -> Boundary:
    """A loss at ``path`` that reads what every policy loss reads, with the metrics ``logged`` beside it."""
    return Boundary(
        path=path,
        stage="policy-loss",
        call=call,
        reads=frozenset({"logprob", "old_logprob", "advantage", "mask"}),
        outputs={"loss": Output("", "", "loss"), **logged},
        settings=settings,
        claims=said,
        reach=reach,
    )


@cache
def metrics_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Logged names that a loss hands back, by its own source."""
    try:
        source = inspect.getsource(inspect.unwrap(function))
    except OSError:
        return ()
    in_order = _IN_ORDER.search(source)
    if in_order:
        return tuple(f"actor/{name}" for name in in_order[1].split(", "))
    return tuple(name for name in LOGGED if f'"{name}":' in source)


def answered(result: Any, logged: tuple[str, ...]) -> Mapping[str, Tensor]:  # noqa: ANN401 - the target's answer
    """The loss and the metrics ``logged``, from a mapping or from what stands behind the loss."""
    loss, *rest = result if isinstance(result, tuple) else (result,)
    found = rest[0] if rest and isinstance(rest[0], Mapping) else dict(zip(logged, rest, strict=False))
    return {"loss": loss} | {name: torch.as_tensor(found[name]).detach().float() for name in logged}
