"""AReaL's policy losses and its value loss."""

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor

from rl_sentinel.adapters.areal.correction import CONFIG as REJECTION
from rl_sentinel.adapters.areal.correction import rejection
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.errors import Unbindable

Call = Callable[[Batch, Settings], Mapping[str, Tensor]]

PPO = "areal.utils.functional.ppo_actor_loss_fn"
SAPO = "areal.utils.functional.sapo_loss_fn"
CRITIC = "areal.utils.functional.ppo_critic_loss_fn"

_RATIO = claims("functional.py, ppo_actor_loss_fn: ratio of the current to the proximal policy", ratio=True)
_SEQUENCE = _RATIO | claims(
    "functional.py, ppo_actor_loss_fn: advantages averaged over the row", on_policy_gradient="other"
)
_GATE = claims("functional.py, sapo_loss_fn: soft sigmoid gates instead of clipping", on_policy_gradient="other")

PLAIN: Mapping[str, Settings] = {
    "default": {"eps_clip": 0.2},
    "clip higher": {"eps_clip": 0.2, "eps_clip_higher": 0.28},
    "dual clip": {"eps_clip": 0.2, "c_clip": 3.0},
    "sequence": {"eps_clip": 0.2, "importance_sampling_level": "sequence"},
}

REJECTING: Mapping[str, Settings] = {
    "decoupled, token rejection": {"level": "token", "metric": "ratio", "upper": 5.0},
    "decoupled, sequence rejection": {"level": "sequence", "metric": "ratio", "upper": 5.0},
}

GATES: Mapping[str, Settings] = {
    "default": {"tau_pos": 1.0, "tau_neg": 1.05},
    "sequence": {"tau_pos": 1.0, "tau_neg": 1.05, "importance_sampling_level": "sequence"},
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Each loss that the release has; the first and the last are in all of them."""
    for path, make in ((PPO, _ppo), (SAPO, _sapo), (CRITIC, _critic)):
        try:
            if path != SAPO or target.has(path):
                target.find(path)
                yield from make(target)
        except Unbindable as why:
            yield Unbound(path, "value-loss" if path == CRITIC else "policy-loss", str(why))


def _ppo(target: Target) -> Iterator[Boundary]:
    def plain(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        old = batch.old_logprob
        given = {"logprobs": batch.logprob, "proximal_logprobs": old, "old_logprobs": old}
        given |= {"advantages": batch.advantage, "loss_mask": batch.mask.clone()}
        return {"loss": target.call(PPO, **given, **settings)[0]}

    def decoupled(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {"logprobs": batch.logprob, "proximal_logprobs": batch.old_logprob}
        given |= {"old_logprobs": batch.rollout_logprob, "advantages": batch.advantage}
        given |= {"loss_mask": batch.mask.clone()}
        config = rejection(target, settings)
        return {"loss": target.call(PPO, **given, eps_clip=0.2, rejection_sampling=config)[0]}

    for name, settings in PLAIN.items():
        yield _policy(PPO, plain, name, settings, _SEQUENCE if name == "sequence" else _RATIO)
    if target.has(REJECTION):
        for name, settings in REJECTING.items():
            yield _policy(PPO, decoupled, name, settings, _RATIO, frozenset({"rollout_logprob"}))


def _sapo(target: Target) -> Iterator[Boundary]:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = (batch.logprob, batch.old_logprob, batch.advantage)
        return {"loss": target.call(SAPO, *given, loss_mask=batch.mask.clone(), **settings)[0]}

    for name, settings in GATES.items():
        yield _policy(SAPO, call, name, settings, _GATE)


def _policy(  # noqa: PLR0913 - what two losses differ in
    path: str,
    call: Call,
    name: str,
    settings: Settings,
    said: Claims,
    more: frozenset[str] = frozenset(),
) -> Boundary:
    return Boundary(
        path=path,
        stage="policy-loss",
        call=call,
        reads=frozenset({"logprob", "old_logprob", "advantage", "mask"}) | more,
        outputs={"loss": Output("", "", "loss")},
        settings={name: settings},
        claims=said,
        reach=", ".join(f"actor.{k}={v}" for k, v in settings.items()),
    )


def _critic(target: Target) -> Iterator[Boundary]:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = (batch.value, batch.old_value, batch.returns)
        return {"loss": target.call(CRITIC, *given, loss_mask=batch.mask.clone(), **settings)[0]}

    yield Boundary(
        path=CRITIC,
        stage="value-loss",
        call=call,
        reads=frozenset({"value", "old_value", "returns", "mask"}),
        outputs={"loss": Output("", "", "loss")},
        settings={
            "default": {"value_eps_clip": 0.5},
            "huber": {"value_eps_clip": 0.5, "loss_fn_type": "huber"},
        },
        reach="critic.eps_clip",
    )
