"""AReaL's advantages: the actor's own method, from raw rewards to normalised advantages."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.areal.sequences import group_size, sequences
from rl_sentinel.adapters.layout import put_full, take_full
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.errors import Unbindable

ACTOR = "areal.trainer.ppo.actor.PPOActor"
PATH = f"{ACTOR}._compute_advantages"
CONFIG = "areal.api.cli_args.PPOActorConfig"
NORM = "areal.api.cli_args.NormConfig"

#: A clip of rewards that no case reaches, where the clip itself is not what is asked about.
UNCLIPPED: Settings = {"reward_clip": 1e6}

_GAE = "actor.py, _compute_advantages: values are zeros where there is no critic; discount and gae_lambda are 1"
_NO_EOS = "cli_args.py, mask_no_eos_with_zero: mask truncated generations (no EOS token), exclude from training"
_BY_GROUP = "cli_args.py, NormConfig: mean and deviation of level 'group', of group_size rows each"

_OUTCOME = claims(_GAE, credit="outcome")
_SUPPRESSES = claims(_NO_EOS, suppresses="unscored")

#: Setting -> what it claims; ``reward mean`` and its kin name the level of a statistic.
FAMILIES: Mapping[str, tuple[Settings, Claims]] = {
    "default": ({}, claims(_GAE, credit="outcome", scope="sequence")),
    "group reward": (
        {"reward mean": "group", "reward std": "group", "kl_ctl": 0.0, **UNCLIPPED},
        _OUTCOME | claims(_BY_GROUP, scope="group", baseline="relative", standardised=True),
    ),
    "group reward, mean only": (
        {"reward mean": "group", "reward std": None, "kl_ctl": 0.0, **UNCLIPPED},
        _OUTCOME | claims(_BY_GROUP, scope="group", baseline="relative", standardised=False),
    ),
    "group reward, leave one out": (
        {"reward mean": "group", "reward std": None, "reward leave1out": True, "kl_ctl": 0.0, **UNCLIPPED},
        _OUTCOME | claims(_BY_GROUP, scope="group", baseline="relative", standardised=False),
    ),
    "no EOS masked": (
        {"mask_no_eos_with_zero": True, **UNCLIPPED},
        _SUPPRESSES | claims(_GAE, credit="outcome", scope="sequence"),
    ),
    "no EOS masked, batch mean": (
        {"mask_no_eos_with_zero": True, "reward mean": "batch", "reward std": None, **UNCLIPPED},
        _SUPPRESSES | _OUTCOME,
    ),
    "no EOS masked, batch": (
        {"mask_no_eos_with_zero": True, "reward mean": "batch", "reward std": "batch", **UNCLIPPED},
        _SUPPRESSES | _OUTCOME,
    ),
    "no EOS masked, group": (
        {"mask_no_eos_with_zero": True, "reward mean": "group", "reward std": "group", **UNCLIPPED},
        _SUPPRESSES | _OUTCOME | claims(_BY_GROUP, scope="group"),
    ),
    "critic": (
        {"discount": 0.9, "gae_lambda": 0.95, "critic": True},
        claims(_GAE, credit="temporal", scope="sequence"),
    ),
    "advantage, batch": ({"adv mean": "batch", "adv std": "batch"}, _OUTCOME),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The method, once per family, since what it claims depends on the settings."""
    try:
        for path in (PATH, CONFIG, NORM):
            target.find(path)
    except Unbindable as why:
        yield Unbound(PATH, "advantage", str(why))
        return
    for name, (settings, said) in FAMILIES.items():
        yield _boundary(target, name, settings, said)


def _boundary(target: Target, name: str, settings: Settings, said: Claims) -> Boundary:
    reads = {"reward", "mask", "length", "prompt_length", "old_logprob", "ref_logprob"}
    reads |= {"scored"} if settings.get("mask_no_eos_with_zero") else set()
    reads |= {"value"} if settings.get("critic") else set()
    reads |= {"group"} if "group" in settings.values() else set()
    return Boundary(
        path=PATH,
        stage="advantage",
        call=lambda batch, knobs: _call(target, batch, knobs),
        reads=frozenset(reads),
        outputs={
            "advantage": Output("B T", "reward", "advantage"),
            "returns": Output("B T", "reward", "returns"),
            "kl_reward": Output("B T", "reward", "kl_reward"),
        },
        settings={name: settings},
        claims=said,
        reach=", ".join(knob(k, v) for k, v in settings.items() if k != "critic" and k not in UNCLIPPED),
    )


def knob(name: str, value: object) -> str:
    """A setting in the words of AReaL's configuration."""
    which, _, what = name.partition(" ")
    own = {"mean": "mean_level", "std": "std_level", "leave1out": "mean_leave1out"}
    return f"actor.{which}_norm.{own[what]}={value}" if what else f"actor.{name}={value}"


def _call(target: Target, batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
    data: dict[str, Tensor] = sequences(batch)
    reference = data["ref_logp"]
    if settings.get("critic"):
        data["values"] = put_full(batch.value, batch, data["input_ids"].shape[1] - _full(batch), shift=1)
    actor = target.call(ACTOR, _config(target, batch, settings), None)
    answer = target.call(PATH, actor, data)
    return {
        "advantage": take_full(answer["advantages"], batch, shift=1),
        "returns": take_full(answer["returns"], batch, shift=1),
        "kl_reward": take_full(answer["kl_rewards"], batch, shift=1),
        "after/ref_logprob": take_full(reference, batch, shift=1),
    }


def _full(batch: Batch) -> int:
    return int(batch.prompt_length.max()) + batch.width


def _config(target: Target, batch: Batch, settings: Settings) -> Any:  # noqa: ANN401 - the target's class
    plain = {k: v for k, v in settings.items() if " " not in k and k != "critic"}
    for which in ("reward", "adv"):
        if f"{which} mean" in settings:
            plain[f"{which}_norm"] = norm(target, batch, settings, which)
    return target.call(CONFIG, **plain)


def norm(target: Target, batch: Batch, settings: Settings, which: str) -> Any:  # noqa: ANN401
    """AReaL's configuration of one normalisation; ``which`` is the first word of its settings."""
    mean, std = settings[f"{which} mean"], settings[f"{which} std"]
    given: dict[str, Any] = {"mean_level": mean, "std_level": std}
    if settings.get(f"{which} leave1out"):
        given["mean_leave1out"] = True
    if "group" in (mean, std):
        given["group_size"] = group_size(batch)
    return target.call(NORM, **given)
