"""AReaL's policy losses and value loss on packed sequences, and its sequence-level loss on padded sequences."""

from collections.abc import Iterator, Mapping
from inspect import signature

from rl_sentinel.adapters.areal.arguments import PACKED, REJECTION, packed, rejection
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, CumulativeLengths
from rl_sentinel.adapters.kit.value_codecs import Constant, IfSet, Knob, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Stage, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec

PPO = "areal.utils.functional.ppo_actor_loss_fn"
SAPO = "areal.utils.functional.sapo_loss_fn"
CRITIC = "areal.utils.functional.ppo_critic_loss_fn"

#: Paths of both functions until August 2025, in the package realhf.
_FORMER = {
    PPO: "realhf.impl.model.utils.ppo_functional.actor_loss_fn",
    CRITIC: "realhf.impl.model.utils.ppo_functional.critic_loss_fn",
}

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

#: Without recomputed log-probs, the sampler is both the behavior policy and the proximal policy.
_NOT_DECOUPLED = "areal/trainer/ppo/actor.py, _compute_advantages: data['prox_logp'] = old_logp"
#: The trainer passes no ``loss_fn_type``.
_CRITIC_DEFAULT = "areal/trainer/ppo/critic.py, ppo_loss_fn: float values of packed sequences, loss_mask.bool()"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of each loss that the release has; every release has PPO and the value loss."""
    path = _path(target, PPO)
    usable = target.has(path) and not target.fails(path)
    known = signature(target.find(path)).parameters if usable else None
    ppo = [
        _ppo(path, name, settings, knobs(*settings), "old_logprob")
        for name, settings in PLAIN.items()
        if known is None or set(settings) <= set(known)
    ]
    if target.has(REJECTION):
        for name, settings in REJECTING.items():
            numbers: dict[str, Codec] = {"eps_clip": Constant(0.2), "rejection_sampling": rejection(settings)}
            ppo.append(_ppo(path, name, settings, numbers, "rollout_logprob"))
    yield from bindable(target, *ppo)
    if known is not None and "importance_sampling_level" in known:
        yield from bindable(target, _padded())
    yield from bindable(target, *(_sapo(name, settings) for name, settings in GATES.items()), optional=True)
    yield from bindable(target, _critic(_path(target, CRITIC)))


def _path(target: Target, path: str) -> str:
    """The path of a loss in this release."""
    return path if target.has(path) or not target.has(_FORMER[path]) else _FORMER[path]


def _ppo(path: str, name: str, settings: Settings, numbers: Mapping[str, Codec], sampler: str) -> Boundary:
    arguments = {
        "logprobs": packed("logprob"),
        "old_logprobs": packed(sampler),
        "advantages": packed("advantage"),
        "eps_clip_higher": Constant(None),
        "loss_mask": packed("mask"),
        "c_clip": Constant(None),
        "proximal_logprobs": packed("old_logprob"),
        "cu_seqlens": CumulativeLengths("total"),
        **numbers,
    }
    prefix = "actor.rejection_sampling" if "level" in settings else "actor"
    also = ["actor.use_decoupled_loss=True"] if "level" in settings else []
    return _policy(
        path,
        name,
        settings,
        arguments,
        _SEQUENCE if name == "sequence" else _RATIO,
        ", ".join([*also, *(f"{prefix}.{k}={v}" for k, v in settings.items())]),
        {"proximal_logprobs": PACKED if also else f"{PACKED}; {_NOT_DECOUPLED}"},
    )


def _padded() -> Boundary:
    """The boundary of the sequence-level loss on padded sequences.

    The target treats tensors of two axes as padded.
    """
    settings: Settings = {"eps_clip": 0.2, "importance_sampling_level": "sequence"}
    arguments = {
        "logprobs": Column("logprob"),
        "old_logprobs": Column("old_logprob"),
        "advantages": Column("advantage"),
        "eps_clip_higher": Constant(None),
        "loss_mask": Column("mask"),
        "c_clip": Constant(None),
        "proximal_logprobs": Column("old_logprob"),
        "cu_seqlens": Constant(None),
        **knobs(*settings),
    }
    cite = "functional.py, _compute_sequence_level_ratio_and_advantages: 2D tensors are padded, [batch, sequence]"
    produced = dict.fromkeys(("logprobs", "old_logprobs", "advantages", "loss_mask", "cu_seqlens"), cite)
    reach = "actor.importance_sampling_level=sequence, on padded data"
    return _loss(PPO, "policy-loss", arguments, produced, {"sequence, padded": settings}, _SEQUENCE, reach)


def _sapo(name: str, settings: Settings) -> Boundary:
    arguments = {
        "logprobs": packed("logprob"),
        "old_logprobs": packed("old_logprob"),
        "advantages": packed("advantage"),
        "loss_mask": packed("mask"),
        "cu_seqlens": CumulativeLengths("total"),
        **knobs(*settings),
    }
    reach = ", ".join(f"actor.{'sapo_' if k.startswith('tau') else ''}{k}={v}" for k, v in settings.items())
    return _policy(SAPO, name, settings, arguments, _GATE, f"actor.use_sapo_loss=True, {reach}", {})


def _policy(  # noqa: PLR0913 - the parts in which the losses differ
    path: str,
    name: str,
    settings: Settings,
    arguments: Mapping[str, Codec],
    claimed: Claims,
    reach: str,
    produced_by: Mapping[str, str],
) -> Boundary:
    common = dict.fromkeys(("logprobs", "old_logprobs", "advantages", "loss_mask", "cu_seqlens"), PACKED)
    return _loss(path, "policy-loss", arguments, {**common, **produced_by}, {name: settings}, claimed, reach)


def _critic(path: str) -> Boundary:
    arguments = {
        "value": packed("value"),
        "old_value": packed("old_value"),
        "target_value": packed("returns"),
        "value_eps_clip": Knob("value_eps_clip"),
        "loss_mask": packed("mask"),
        "loss_fn_type": IfSet("loss_fn_type"),
    }
    settings: Mapping[str, Settings] = {
        "default": {"value_eps_clip": 0.5, "loss_fn_type": "mse"},
        "huber": {"value_eps_clip": 0.5, "loss_fn_type": "huber"},
    }
    produced_by = dict.fromkeys(("value", "old_value", "target_value", "loss_mask", "loss_fn_type"), _CRITIC_DEFAULT)
    return _loss(path, "value-loss", arguments, produced_by, settings, Claims(), "critic.eps_clip")


def _loss(  # noqa: PLR0913 - the fields of a loss
    path: str,
    stage: Stage,
    arguments: Mapping[str, Codec],
    produced_by: Mapping[str, str],
    settings: Mapping[str, Settings],
    claimed: Claims,
    reach: str,
) -> Boundary:
    optional = {"cu_seqlens", *(n for n, codec in arguments.items() if codec == Constant(None))}
    if arguments.get("proximal_logprobs") == arguments.get("old_logprobs"):  # one policy, in the first releases too
        optional.add("proximal_logprobs")
    return one_call(
        path=path,
        stage=stage,
        call=path,
        name="result",
        arguments=arguments,
        produced_by=produced_by,
        optional=frozenset(optional),  # a release need not have an option that is not used,
        unused=frozenset({"length", "prompt_length"}),
        outputs={"loss": Output("", "", "loss", at=Use("result")[0])},
        settings=settings,
        claims=claimed,
        reach=reach,
    )
