"""SkyRL's policy losses as its trainer reaches them, and the critic's loss."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.skyrl.advantages import path_of, registered
from rl_sentinel.frameworks.skyrl.batches import MODULE, algorithm, right
from rl_sentinel.frameworks.target import Target

REGISTRY = f"{MODULE}.PolicyLossRegistry"
PPO = f"{MODULE}.ppo_policy_loss"
SCALE = f"{MODULE}.apply_loss_reduction_to_advantages_minibatch"
CRITIC = f"{MODULE}.ppo_critic_loss"

#: Fine-tuning without a reward, entered by another route.
_APART = ("cross_entropy",)

#: Losses whose ratio is to the sampler's log-probs.
_TO_SAMPLER = ("rollout_is", "dppo")

_DOC = "ppo_utils.py, the loss: ratio of the current to the old policy"
_CHOICE = "ppo_utils.py, docstring: tokens are chosen by the size of their covariance"
_OTHER = claims("ppo_utils.py, docstring", on_policy_gradient="other")

CLAIMS: Mapping[str, Claims] = {
    "regular": claims(_DOC, ratio=True),
    "dual_clip": claims(_DOC, ratio=True),
    "gspo": claims(_DOC, ratio=True, scope="sequence"),
    "sapo": _OTHER,
    "clip_cov": claims(_CHOICE, on_policy_gradient="other", row_order=True),
    "kl_cov": claims(_CHOICE, on_policy_gradient="other", row_order=True),
}

#: Reductions that all releases know, and a fixed length for the one that asks for it.
REDUCTIONS = ("token_mean", "sequence_mean", "seq_mean_token_sum_norm")
LENGTH = 8


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per registered loss and reduction, then the critic's."""
    try:
        found = registered(target, REGISTRY)
    except Unbindable as why:
        yield Unbound(PPO, "policy-loss", str(why))
        return
    for name, function in found.items():
        if name in _APART:
            continue
        try:
            target.source(function)
            yield _policy(target, name, function)
        except Unbindable as why:
            yield Unbound(path_of(function), "policy-loss", str(why))
    try:
        target.find(CRITIC)
        yield _critic(target)
    except Unbindable as why:
        yield Unbound(CRITIC, "value-loss", str(why))


def _policy(target: Target, name: str, function: Callable[..., Any]) -> Boundary:
    path, scales = path_of(function), target.has(SCALE)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        mask, advantage = right(batch, "mask").float(), right(batch, "advantage")
        reduction = settings["loss_reduction"]
        if scales:
            advantage = target.call(SCALE, advantage, mask, reduction, batch.rows, LENGTH)
        knobs = {"policy_loss_type": name, "loss_reduction": reduction, "max_seq_len": LENGTH}
        given = (right(batch, "logprob"), right(batch, "old_logprob"), advantage)
        sampler = right(batch, "rollout_logprob")
        answer = target.call(path, *given, algorithm(target, knobs), mask, sampler)
        return {"loss": answer[0]}

    algorithm(target, {"policy_loss_type": name, "loss_reduction": "token_mean", "max_seq_len": LENGTH})
    old = "rollout_logprob" if name in _TO_SAMPLER else "old_logprob"
    return Boundary(
        path=f"{SCALE} -> {path}" if scales else path,
        stage="policy-loss",
        call=call,
        reads=frozenset({"logprob", old, "advantage", "mask", "length"}),
        outputs={"loss": Output("", "", "loss")},
        settings={f"{name}, {r}": {"loss_reduction": r} for r in REDUCTIONS},
        claims=CLAIMS.get(name, Claims()),
        reach=f"trainer.algorithm.policy_loss_type={name}",
    )


def _critic(target: Target) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        section = algorithm(target, settings)
        given = {"values": right(batch, "value"), "old_values": right(batch, "old_value")}
        given |= {"returns": right(batch, "returns"), "loss_mask": right(batch, "mask").float()}
        return {"loss": target.call(CRITIC, **given, config=section)[0]}

    inspect.signature(target.find(CRITIC)).bind(None, None, None, config=None, loss_mask=None)
    return Boundary(
        path=CRITIC,
        stage="value-loss",
        call=call,
        reads=frozenset({"value", "old_value", "returns", "mask", "length"}),
        outputs={"loss": Output("", "", "loss")},
        settings={"default": {"value_clip": 0.2}},
        reach="trainer.algorithm.advantage_estimator=gae",
    )
