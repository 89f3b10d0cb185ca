"""Map parameters of signal functions to batch columns and to the values of numbers."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Stage, Unbound
from rl_sentinel.core.case import Scalar, Settings

SIGNAL = "rl_sentinel.signal"
PACKED = f"{SIGNAL}.segments.packed"
PADDED = f"{SIGNAL}.segments.padded"
SEGMENTS = f"{SIGNAL}.segments.Segments"

#: Parameter -> column of the batch.
COLUMN_OF: Mapping[str, str] = {"live": "mask", "row": "reward"} | {
    name: name
    for name in (
        *("reward", "group", "length", "mask", "logprob", "old_logprob", "ref_logprob", "rollout_logprob"),
        *("advantage", "reward_baseline", "token_reward", "value", "old_value", "returns", "scored", "reward_parts"),
        *("pi_squared", "logits", "token", "version", "turn"),
    )
}

#: Parameter -> its value, in the unit of its docstring.
NUMBERS: Mapping[str, Scalar] = {
    "epsilon": 1e-6,
    "clip_low": 0.2,
    "clip_high": 0.28,
    "ceiling": 3.0,
    "temperature": 1.0,
    "negative_temperature": 1.05,
    "discount": 0.9,
    "decay": 0.5,
    "bias": 0.5,
    "scale": 2.0,
    "least": -1.0,
    "most": 1.0,
    "limit": 5,
    "buffer": 3,
    "factor": 0.5,
    "coefficient": 0.1,
    "low": 0.6,
    "high": 1.6,
    "floor": 0.3,
    "threshold": 0.0413,
    "penalty": 0.5,
    "value_clip": 0.3,
    "current": 4,
}

#: Boolean parameter -> the claim that it decides.
CHOICES: Mapping[str, str] = {"standardize": "standardized"}

#: Parameters that are set elsewhere.
_ELSEWHERE = {"aggregation", "weight", *CHOICES}


def unbound(path: str, stage: Stage, function: Callable[..., Any], known: tuple[str, ...] = ()) -> Unbound | None:
    """Return an ``Unbound`` if a parameter of the function is unknown, and None otherwise."""
    tables = {*COLUMN_OF, *NUMBERS, *_ELSEWHERE, *known}
    name = next((n for n in inspect.signature(function).parameters if n not in tables), None)
    reason = f"{path} has the parameter {name!r}, expected a parameter of adapters/library/arguments.py: add it there"
    return Unbound(path, stage, reason) if name else None


def columns(function: Callable[..., Any]) -> str:
    """The columns from which a function's parameters are built, separated by spaces."""
    names = [COLUMN_OF[n] for n in inspect.signature(function).parameters if n in COLUMN_OF]
    return " ".join([*names, *(["reward"] if "token_reward" in names else [])])


def numbers(function: Callable[..., Any]) -> dict[str, Scalar]:
    """The numeric parameters of a function, with their values."""
    return {n: NUMBERS[n] for n in inspect.signature(function).parameters if n in NUMBERS}


def arguments(function: Callable[..., Any], batch: Batch) -> dict[str, Tensor]:
    """The tensor arguments of a function, by parameter."""
    computed: dict[str, Callable[[], Tensor]] = {
        "live": lambda: batch.live,
        "token_reward": lambda: _with_outcome(batch),
        "weight": lambda: torch.arange(1.0, 1.0 + batch.reward_parts.shape[1]),
    }
    names = [n for n in inspect.signature(function).parameters if n in COLUMN_OF or n in computed]
    return {n: computed[n]() if n in computed else getattr(batch, COLUMN_OF[n]) for n in names}


def packed_arguments(target: Target, function: Callable[..., Any], batch: Batch) -> dict[str, Any]:
    """The arguments of a function in the packed layout, with the mask as ``Segments``."""
    packed: dict[str, Any] = {n: pack(target, c, batch) for n, c in arguments(function, batch).items()}
    return packed | {"mask": target.call(SEGMENTS, packed["mask"], batch.length)}


def pack(target: Target, column: Tensor, batch: Batch) -> Tensor:
    """Pack a column ``[B, T]``; a column with fewer or more axes is unchanged."""
    packed: Tensor = target.call(PACKED, column, length=batch.length) if column.dim() == 2 else column
    return packed


def certain(batch: Batch) -> Batch:
    """The batch of a policy that assigns probability 1 to each sampled token."""
    return with_columns(batch, logprob=torch.zeros_like(batch.logprob), pi_squared=torch.ones_like(batch.pi_squared))


def without(settings: Settings, *names: str) -> Settings:
    """The settings without the settings of these names."""
    return {n: v for n, v in settings.items() if n not in names}


def _with_outcome(batch: Batch) -> Tensor:
    """Token rewards plus the outcome at the last trained token of each row."""
    last = batch.mask & (batch.mask.flip(1).cumsum(1).flip(1) == 1)
    return batch.token_reward + torch.where(last, batch.reward.unsqueeze(1), 0.0)
