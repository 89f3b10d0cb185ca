"""PPO in TRL before 0.12: advantages, policy loss, value loss, and their logged metrics."""

import inspect
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import every_row_trains, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import trains_whole_completions
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Fields of the configuration that the methods read, apart from the settings of a case.
CONFIG: Mapping[str, Any] = {"vf_coef": 1.0, "ratio_threshold": 1e9, "whiten_rewards": False}

_PRODUCER = "ppo_trainer.py, step: log-probs, values and masks of all tokens except the first, from the forward pass"

_GAE = claims(
    "ppo_trainer.py, compute_advantages: generalized advantage estimation of rewards per token, then masked_whiten",
    scope="batch",
    credit="temporal",
    algorithm="gae",
)

_POLICY = claims(
    "ppo_trainer.py, loss: ratio, clamp with cliprange, masked_mean", ratio=True, algorithm="ppo"
) | claims("ppo_trainer.py, loss: masked_mean over the tokens of the mini-batch", aggregation="token-mean")
_VALUE = claims(
    "ppo_trainer.py, loss: 0.5 * masked_mean(torch.max(vf_losses1, vf_losses2), mask)",
    algorithm="clipped value",
    factor="half",
    aggregation="token-mean",
)

#: Logged name -> output.
POLICY_LOGGED: Mapping[str, Output] = {
    "policy/clipfrac": Output("", "", "clip_fraction", over="live"),
    "policy/approxkl": Output("", "nats", "kl.mean", over="live"),
    "policy/policykl": Output("", "nats", "kl.mean", over="live"),
}
VALUE_LOGGED: Mapping[str, Output] = {
    "val/vpred": Output("", "reward", "value.mean", over="live"),
    "val/clipfrac": Output("", "", "value_clip_fraction", over="live"),
    "returns/mean": Output("", "reward", "returns.mean", over="live"),
}


def boundaries(target: Target, trainer: str) -> Iterator[Boundary | Unbound]:
    """Boundaries of the advantages and the losses, in releases whose methods have a mask parameter."""
    path = f"{trainer}.compute_advantages"
    if target.has(path) and "mask" in inspect.signature(target.find(path)).parameters:
        yield from bindable(target, _advantages(path, trainer))
    path = f"{trainer}.loss"
    names = inspect.signature(target.find(path)).parameters if target.has(path) else {}
    if {"mask", "advantages", "vpreds"} <= set(names):
        yield from bindable(target, _policy(path, trainer), _value(path, trainer))


def make_ppo(kind: Any, **settings: Any) -> Any:  # noqa: ANN401 - a class of the target
    """A bare trainer with the configuration that its losses read."""
    return bare_instance(kind, config=SimpleNamespace(**{**CONFIG, **settings}))


def _trainer(trainer: str, knobs: Mapping[str, str]) -> Object:
    parts: dict[str, Codec] = {"kind": Constant(Function(trainer)), **{field: Knob(n) for field, n in knobs.items()}}
    return Object(
        make_ppo, parts, at={"kind": "__class__", **{field: f"config.{field}" for field in knobs}}, shared=True
    )


def _advantages(path: str, trainer: str) -> Boundary:
    computed, settings = Use("computed"), dict[str, float]({"gamma": 0.9, "lam": 0.8})
    return one_call(
        path=path,
        stage="advantage",
        call=path,
        name="computed",
        arguments={
            "self": _trainer(trainer, {"gamma": "gamma", "lam": "lam"}),
            "values": Column("value"),
            "rewards": TokenRewards(),
            "mask": Column("mask", dtype=torch.int64),
        },
        produced_by={"mask": _PRODUCER},
        outputs={
            "advantage": Output("B T", "reward", "advantage", at=computed[1], form=Padded()),
            "returns": Output("B T", "reward", "returns", at=computed[2], form=Padded()),
        },
        settings={"default": settings},
        claims=_GAE,
        reach="every step",
        requires=(no_empty_response, every_row_trains, trains_whole_completions, several_tokens),
    )


def several_tokens(inputs: Any) -> str:  # noqa: ANN401 - the inputs of a call
    """The reason to skip a mini-batch with fewer than two trained tokens (TRL rejects it); empty otherwise."""
    return "" if int(inputs.mini_batch.mask.sum()) > 1 else "the variance of one token is undefined, and TRL rejects it"


def _arguments(trainer: str) -> dict[str, Codec]:
    return {
        "self": _trainer(trainer, {"cliprange": "clip_low", "cliprange_value": "value_clip"}),
        "old_logprobs": Column("old_logprob"),
        "values": Column("old_value"),
        "logits": Column("logits"),
        "vpreds": Column("value"),
        "logprobs": Column("logprob"),
        "mask": Column("mask", dtype=torch.int64),
        "advantages": Column("advantage"),
        "returns": Column("returns"),
    }


_SETTINGS: Settings = {"clip_low": 0.2, "clip_high": 0.2, "value_clip": 0.5}


def _loss(path: str, trainer: str, which: int, unused: frozenset[str], **more: Any) -> Boundary:  # noqa: ANN401 - fields of a boundary
    step = Step(call=path, name="computed", arguments=_arguments(trainer), produced_by={"mask": _PRODUCER})
    computed = Use("computed")
    logged = {n: Output("", o.unit, o.quantity, over=o.over, at=computed[2][n]) for n, o in more.pop("logged").items()}
    return Boundary(
        path=path,
        steps=(step,),
        unused=unused,
        outputs={"loss": Output("", "", "loss", at=computed[which]), **logged},
        reach="every step",
        requires=(no_empty_response, has_trained_token, several_tokens),
        **more,
    )


def _policy(path: str, trainer: str) -> Boundary:
    unused = frozenset({"old_value", "value", "returns", "logits"})
    settings: Mapping[str, Settings] = {"policy": _SETTINGS}
    return _loss(path, trainer, 0, unused, stage="policy-loss", logged=POLICY_LOGGED, settings=settings, claims=_POLICY)


def _value(path: str, trainer: str) -> Boundary:
    unused = frozenset({"old_logprob", "logprob", "advantage", "logits"})
    settings: Mapping[str, Settings] = {"value": _SETTINGS}
    return _loss(path, trainer, 1, unused, stage="value-loss", logged=VALUE_LOGGED, settings=settings, claims=_VALUE)
