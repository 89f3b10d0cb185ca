"""What the parameters of signal functions mean: a column of the batch, a number, a choice."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import Claims, claims_from_text
from rl_sentinel.frameworks.target import Target

SIGNAL = "rl_sentinel.signal"

#: Parameter of a signal function -> the column that it is made of.
COLUMN_OF: Mapping[str, str] = {
    "reward": "reward",
    "group": "group",
    "length": "length",
    "live": "mask",
    "mask": "mask",
    "logprob": "logprob",
    "old_logprob": "old_logprob",
    "ref_logprob": "ref_logprob",
    "advantage": "advantage",
    "reward_baseline": "reward_baseline",
    "token_reward": "token_reward",
    "value": "value",
    "row": "reward",
    "scored": "scored",
    "rollout_logprob": "rollout_logprob",
    "reward_parts": "reward_parts",
    "pi_squared": "pi_squared",
    "old_value": "old_value",
    "returns": "returns",
    "logits": "logits",
    "token": "token",
    "version": "version",
    "turn": "turn",
}

#: Parameter that is a number -> what it is set to; in the unit of its docstring.
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
    "share": 0.4,
    "current": 4,
}

#: Parameter that is a number -> the edge of what it may be, at which the library is audited too.
EDGES: Mapping[str, Scalar] = {"epsilon": 0.0}

#: Parameter that is a choice -> the claim that it decides.
CHOICES: Mapping[str, str] = {"standardise": "standardised"}


#: Parameter that is a tensor with no column of its own, or not as it stands there -> what it is.
MADE: Mapping[str, Callable[[Batch], Tensor]] = {
    "weight": lambda batch: torch.arange(1.0, 1.0 + batch.reward_parts.shape[1]),
}


def certain(batch: Batch) -> Batch:
    """The batch as a policy would have made it that gives each token all its probability."""
    return with_columns(batch, logprob=torch.zeros_like(batch.logprob), pi_squared=torch.ones_like(batch.pi_squared))


def unknown(function: Callable[..., Any]) -> str:
    """The first parameter of which no table knows what it is, or an empty word."""
    known = {*COLUMN_OF, *NUMBERS, *CHOICES, *MADE, "aggregation"}
    return next((n for n in inspect.signature(function).parameters if n not in known), "")


def columns(function: Callable[..., Any]) -> frozenset[str]:
    """The columns that a function's parameters are made of."""
    found = {COLUMN_OF[n] for n in inspect.signature(function).parameters if n in COLUMN_OF}
    return frozenset(found | ({"reward"} if "token_reward" in found else set()))


def numbers(function: Callable[..., Any]) -> dict[str, Scalar]:
    """The settings of a function that are numbers."""
    return {n: NUMBERS[n] for n in inspect.signature(function).parameters if n in NUMBERS}


def families(function: Callable[..., Any], name: str, chosen: dict[str, Scalar]) -> dict[str, Settings]:
    """The settings of a function with its choices made: its numbers as they are, and each at its edge."""
    plain = numbers(function)
    found: dict[str, Settings] = {name: plain | chosen}
    for n, edge in EDGES.items():
        if n in plain and all(chosen.values()):
            found[f"{n}={edge:g}" if name == "default" else f"{name}, {n}={edge:g}"] = plain | chosen | {n: edge}
    return found


def choices(function: Callable[..., Any]) -> list[str]:
    """The settings of a function that are choices."""
    return [n for n in inspect.signature(function).parameters if n in CHOICES]


@contextmanager
def cut(target: Target, module: str, name: str, size: int) -> Iterator[None]:
    """A module's size of a block made small for a while: cases are short, and so are of several blocks each."""
    place = target.module(module) if target.has(module) else None
    before = getattr(place, name, None)
    if place is not None:
        setattr(place, name, size)
    try:
        yield
    finally:
        if place is not None:
            setattr(place, name, before)


def claims(function: Callable[..., Any], **more: str) -> Claims:
    """What a function's module says of itself, of the function, and what the way of calling it adds."""
    module = inspect.getmodule(function)
    own = getattr(module, "CLAIMS_OF", {}).get(function.__name__, {})
    said = {**getattr(module, "CLAIMS", {}), **own}
    cite = f"{function.__module__}: CLAIMS and docstring"
    parts = {name: name.partition(":") for name in more}  # behind a colon stands the name of a setting or an output
    added = {kind.replace("_", "-") + colon + of: more[n] for n, (kind, colon, of) in parts.items()}
    added |= {"rows": "live"} if "aggregation" in added else {}  # whose mean a loss is, everywhere in the library
    void = {"lone"}  # which only the trainer reads
    void |= {"knob:epsilon"} if added.get("standardised") == "no" else set()  # nothing is divided by
    return claims_from_text({key: text for key, text in {**said, **added}.items() if key not in void}, cite)


def given(function: Callable[..., Any], batch: Batch) -> dict[str, Tensor]:
    """The columns that a function wants, by parameter."""
    wanted = [n for n in inspect.signature(function).parameters if n in COLUMN_OF or n in MADE]
    made: dict[str, Callable[[], Tensor]] = {"live": lambda: batch.live, "token_reward": lambda: _outcome_placed(batch)}
    made |= {n: partial(make, batch) for n, make in MADE.items()}
    return {n: made[n]() if n in made else getattr(batch, COLUMN_OF[n]) for n in wanted}


def _outcome_placed(batch: Batch) -> Tensor:
    """Rewards per token, the outcome at each row's last trained token."""
    last = batch.mask & (batch.mask.flip(1).cumsum(1).flip(1) == 1)
    return batch.token_reward + torch.where(last, batch.reward.unsqueeze(1), 0.0)
