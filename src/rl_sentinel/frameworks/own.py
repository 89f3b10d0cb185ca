"""A function of the user's own: ``module:name`` with its stage, bound by role."""

import os
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Stage, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import SentinelError, Unbindable
from rl_sentinel.frameworks.binding import bound, takes
from rl_sentinel.frameworks.framework import Framework
from rl_sentinel.frameworks.layout import token_rewards
from rl_sentinel.frameworks.target import Target

_STAGES: Mapping[str, tuple[Stage, Output]] = {
    "advantage": ("advantage", Output("B T", "reward", "advantage")),
    "policy-loss": ("policy-loss", Output("", "", "loss")),
    "value-loss": ("value-loss", Output("", "", "loss")),
    "kl": ("kl", Output("B T", "nats", "kl")),
}

#: role -> the columns that it reads.
_READS = {
    "token_rewards": ("reward", "token_reward", "length"),
    "mask": ("mask",),
    "group": ("group",),
    "values": ("value",),
    "logprob": ("logprob",),
    "old_logprob": ("old_logprob",),
    "ref_logprob": ("ref_logprob",),
    "advantage": ("advantage",),
    "returns": ("returns",),
    "reward_baseline": ("reward_baseline",),
}


def _roles(batch: Batch) -> dict[str, object]:
    made = {role: getattr(batch, names[0]) for role, names in _READS.items()}
    return made | {"token_rewards": token_rewards(batch), "gamma": 1.0, "lambda": 1.0}


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    path, stage = os.environ["RL_SENTINEL_FUNCTION"], os.environ["RL_SENTINEL_STAGE"]
    if stage not in _STAGES:
        message = f"--stage is {stage!r}, expected one of {', '.join(_STAGES)}"
        raise SentinelError(message)
    module, _, name = path.partition(":")
    dotted = f"{module}.{name}"
    try:
        function = target.find(dotted)
        bound(function, _roles_of_nothing())
    except Unbindable as why:
        yield Unbound(dotted, _STAGES[stage][0], str(why))
        return
    kind, output = _STAGES[stage]
    key = "loss" if output.axes == "" else output.quantity

    def call(batch: Batch, _settings: Settings) -> Mapping[str, Tensor]:
        result = target.call(dotted, **bound(function, _roles(batch)))
        first = result[0] if isinstance(result, tuple) else result
        if isinstance(first, Tensor) and first.dim() == 1 and output.axes == "B T":
            first = torch.where(batch.mask, first.unsqueeze(1), 0.0)
        return {key: first}

    reads = {c for role, names in _READS.items() if takes(function, role) for c in names}
    yield Boundary(path=dotted, stage=kind, call=call, reads=frozenset(reads), outputs={key: output})


def _roles_of_nothing() -> dict[str, object]:
    return dict.fromkeys((*_READS, "gamma", "lambda"))


FRAMEWORK = Framework(name="own", package="", boundaries=_boundaries)
