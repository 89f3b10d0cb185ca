"""AReaL's overlong penalty, normalization and KL estimators, each called directly."""

from collections.abc import Iterator, Mapping

import torch

from rl_sentinel.adapters.areal.arguments import ROLLOUT, knob, norm, rollout
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import Cast, PerRow
from rl_sentinel.adapters.kit.requirements import groups_are_equal, prompts_are_contiguous
from rl_sentinel.adapters.kit.sequences import FullSequence
from rl_sentinel.adapters.kit.value_codecs import Knob, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

OVERLONG = "areal.utils.functional.reward_overlong_penalty"
NORMALIZE = "areal.utils.data.Normalization"
KL = "areal.utils.data.KLEstimator"

#: A penalty from the second of four tokens on.
PENALTY: Settings = {"overlong_tokens": 3, "overlong_penalty_factor": 1.0, "max_response_length": 4}

LEVELS: Mapping[str, Settings] = {
    "batch": {"x mean": "batch", "x std": "batch"},
    "group": {"x mean": "group", "x std": "group"},
    "group mean": {"x mean": "group", "x std": None},
    "group, leave one out": {"x mean": "group", "x std": None, "x leave1out": True},
}

_FORM = FullSequence(shift=1)
_CALLER = "areal/trainer/ppo/actor.py, _compute_advantages"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the overlong penalty, each level of normalization, each KL estimator."""
    yield from bindable(target, _overlong())
    yield from bindable(target, *(_normalization(name, settings) for name, settings in LEVELS.items()))
    yield from bindable(target, *(_kl(kind) for kind in ("k1", "k2", "k3")))


def _overlong() -> Boundary:
    arguments = {"data": rollout(), **knobs(*PENALTY)}
    return one_call(
        path=OVERLONG,
        stage="reward",
        call=OVERLONG,
        arguments=arguments,
        produced_by={"data": ROLLOUT},
        unused=frozenset({"token", "version", "old_logprob", "length", "prompt_length"}),
        outputs={"reward": Output("B", "reward", "reward", at=Use("data")["rewards"], form=PerRow())},
        settings={"default": PENALTY},
        writes=frozenset({"reward"}),
        reach="actor.overlong_reward_penalty=True",
    )


def _normalization(name: str, settings: Settings) -> Boundary:
    grouped = name != "batch"
    cite = "utils/data.py, Normalization's docstring: 'group' normalizes within fixed-size groups"
    return one_call(
        path=NORMALIZE,
        stage="normalize",
        call=f"{NORMALIZE}.__call__",
        name="normalized",
        arguments={
            "self": Object(NORMALIZE, {"config": norm(settings, "x")}, at={"config": ""}, shared=True),
            "x": Column("advantage", _FORM),
            "loss_mask": Column("mask", _FORM, torch.float32),
        },
        produced_by={"loss_mask": f"{_CALLER}: data['loss_mask'].float(), rolled by one position"},
        outputs={"advantage": Output("B T", "reward", "advantage", at=Use("normalized"), form=_FORM)},
        settings={name: settings},
        claims=claims(cite, scope="group") if grouped else claims(cite, scope="batch"),
        reach=", ".join(knob(k.replace("x ", "adv "), v) for k, v in settings.items()),
        requires=(prompts_are_contiguous, groups_are_equal) if grouped else (),
    )


def _kl(kind: str) -> Boundary:
    return one_call(
        path=KL,
        stage="kl",
        call=f"{KL}.__call__",
        name="kl",
        arguments={
            "self": Object(KL, {"0": Knob("kind")}, at={"0": "kl_estimator"}, shared=True),
            "log_probs": Column("logprob", _FORM),
            "log_probs_base": Column("ref_logprob", _FORM),
        },
        produced_by={"log_probs": f"{_CALLER}: log-probs of the sampler, float32, rolled by one position"},
        outputs={"kl": Output("B T", "nats", f"kl.{kind}", at=Use("kl"), form=Cast(_FORM, torch.float32))},
        settings={kind: {"kind": kind}},
        reach=f"actor.kl_estimator={kind}",
    )
