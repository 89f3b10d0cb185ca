"""Boundaries of the advantage estimators: padded, packed, and for trajectories of several steps."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.library.arguments import (
    CHOICES,
    PACKED,
    PADDED,
    SIGNAL,
    arguments,
    certain,
    columns,
    numbers,
    packed_arguments,
    unbound,
    without,
)
from rl_sentinel.adapters.library.boundary_builder import ADVANTAGE, TOKEN_ADVANTAGE, bind
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.modules import defined

#: Per-token estimators, which are also audited in the packed layout.
_PER_TOKEN = ("gae", "turn_level_gae", "optimal_token_baseline")

OVER = f"{SIGNAL}.steps.over_trajectories"

_TRAJECTORIES = {
    "algorithm": "outcomes of trajectories, centered",
    "scope": "group",
    "grouping": "id",
    "credit": "outcome",
    "masked": "yes",
    "baseline": "relative",
    "trajectories": "step-wise",
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the variants of each estimator, of per-token estimators on packed columns, and of trajectories.

    An estimator with an unknown parameter becomes an ``Unbound``.
    """
    for name, function in defined(target.module(f"{SIGNAL}.advantage"), "advantages").items():
        path = f"{SIGNAL}.advantage.{name}.advantages"
        if missing := unbound(path, "advantage", function):
            yield missing
            continue
        for variant in _variants(function):
            yield _padded(target, path, function, variant)
    for name in _PER_TOKEN:
        yield _packed(target, f"{SIGNAL}.advantage.{name}.advantages")
    yield bind(
        target,
        OVER,
        "advantage",
        _over_trajectories,
        reads="reward group mask trajectory last_step",
        outputs={"advantage": ADVANTAGE},
        settings={"grpo": {"standardize": False, "epsilon": 0.0}},
        claims=_TRAJECTORIES,
    )


def _variants(function: Callable[..., Any]) -> list[dict[str, Scalar]]:
    parameters = inspect.signature(function).parameters
    variants: list[dict[str, Scalar]] = [{n: v} for n in CHOICES if n in parameters for v in (True, False)] or [{}]
    return variants + ([{"certain": True}] if "pi_squared" in parameters else [])


def _padded(target: Target, path: str, function: Callable[..., Any], variant: dict[str, Scalar]) -> Boundary:
    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        read = certain(batch) if settings.get("certain") else batch
        return {"advantage": target.call(path, **arguments(function, read), **without(settings, "certain"))}

    return bind(
        target,
        path,
        "advantage",
        compute,
        reads=columns(function),
        # Outcome estimators return [B]; an estimator that reads the mask returns [B, T].
        outputs={"advantage": TOKEN_ADVANTAGE if "mask" in inspect.signature(function).parameters else ADVANTAGE},
        settings=_settings(function, variant),
        claims={CHOICES[k]: "yes" if v else "no" for k, v in variant.items() if k in CHOICES},
        kernels=any(f".{name}." in path for name in _PER_TOKEN),
    )


def _settings(function: Callable[..., Any], variant: dict[str, Scalar]) -> dict[str, Settings]:
    """The usual numbers and, if ``epsilon`` has an effect, ``epsilon`` at 0, the edge of its range."""
    name = ", ".join(f"{k}={v}" for k, v in variant.items())
    plain = numbers(function) | variant
    settings: dict[str, Settings] = {name or "default": plain}
    if "epsilon" in plain and all(variant.values()):
        settings[", ".join([*([name] if name else []), "epsilon=0"])] = plain | {"epsilon": 0.0}
    return settings


def _packed(target: Target, path: str) -> Boundary:
    function = target.find(path)

    def compute(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        packed = target.call(path, **packed_arguments(target, function, batch), **without(settings, "stored"))
        return {"advantage": target.call(PADDED, packed, length=batch.length, width=batch.width, fill=0.0)}

    return bind(
        target,
        f"{PACKED} -> {path} -> {PADDED}",
        "advantage",
        compute,
        reads=f"{columns(function)} length",
        outputs={"advantage": TOKEN_ADVANTAGE},
        settings={"packed": {**numbers(function), "stored": "packed"}},
        claims_of=path,
        kernels=True,
    )


def _over_trajectories(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    estimator = partial(target.find(f"{SIGNAL}.advantage.grpo.advantages"), **settings)
    rows = {"group": batch.group, "live": batch.live, "trajectory": batch.trajectory, "last": batch.last_step}
    return {"advantage": target.call(OVER, estimator, batch.reward, **rows)}
