"""The parameters of signal functions: which column of the batch each one is, and the value of each number."""

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

#: Parameter -> column of the batch, where the names differ or the name is a column itself.
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

#: Parameter that is a choice -> the claim that it decides.
CHOICES: Mapping[str, str] = {"standardise": "standardised"}

#: Parameters that another table provides.
_ELSEWHERE = {"aggregation", "weight", *CHOICES}


def unbound(path: str, stage: Stage, function: Callable[..., Any], known: tuple[str, ...] = ()) -> Unbound | None:
    """Return an ``Unbound`` if a parameter of the function is in none of the tables, otherwise None."""
    tables = {*COLUMN_OF, *NUMBERS, *_ELSEWHERE, *known}
    name = next((n for n in inspect.signature(function).parameters if n not in tables), None)
    reason = f"{path} has the parameter {name!r}, expected one that adapters/library/arguments.py lists: add it"
    return Unbound(path, stage, reason) if name else None


def columns(function: Callable[..., Any]) -> str:
    """The columns that a function's parameters are made of, separated by spaces."""
    names = [COLUMN_OF[n] for n in inspect.signature(function).parameters if n in COLUMN_OF]
    return " ".join([*names, *(["reward"] if "token_reward" in names else [])])


def numbers(function: Callable[..., Any]) -> dict[str, Scalar]:
    """The parameters of a function that are numbers, with their values."""
    return {n: NUMBERS[n] for n in inspect.signature(function).parameters if n in NUMBERS}


def arguments(function: Callable[..., Any], batch: Batch) -> dict[str, Tensor]:
    """The tensors that a function takes, by parameter."""
    made: dict[str, Callable[[], Tensor]] = {
        "live": lambda: batch.live,
        "token_reward": lambda: _with_outcome(batch),
        "weight": lambda: torch.arange(1.0, 1.0 + batch.reward_parts.shape[1]),
    }
    names = [n for n in inspect.signature(function).parameters if n in COLUMN_OF or n in made]
    return {n: made[n]() if n in made else getattr(batch, COLUMN_OF[n]) for n in names}


def packed_arguments(target: Target, function: Callable[..., Any], batch: Batch) -> dict[str, Any]:
    """The same with columns of tokens packed, and the mask as segments."""
    made: dict[str, Any] = {n: pack(target, c, batch) for n, c in arguments(function, batch).items()}
    return made | {"mask": target.call(SEGMENTS, made["mask"], batch.length)}


def pack(target: Target, column: Tensor, batch: Batch) -> Tensor:
    """A padded column without its padding; a column of rows as it is."""
    packed: Tensor = target.call(PACKED, column, length=batch.length) if column.dim() == 2 else column
    return packed


def certain(batch: Batch) -> Batch:
    """The batch of a policy that gives each sampled token probability 1."""
    return with_columns(batch, logprob=torch.zeros_like(batch.logprob), pi_squared=torch.ones_like(batch.pi_squared))


def without(settings: Settings, *names: str) -> Settings:
    """The settings without these."""
    return {n: v for n, v in settings.items() if n not in names}


def _with_outcome(batch: Batch) -> Tensor:
    """Rewards per token, with the outcome at each row's last trained token."""
    last = batch.mask & (batch.mask.flip(1).cumsum(1).flip(1) == 1)
    return batch.token_reward + torch.where(last, batch.reward.unsqueeze(1), 0.0)
