"""AReaL's advantages in early releases, where flags select the normalization of rewards and advantages."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.areal.advantages import BY_PROMPT, UNCLIPPED, advantages_of, fields_of, with_outputs_in
from rl_sentinel.adapters.areal.arguments import ACTOR, CONFIG, CRITIC, NORM, GroupSize
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.requirements import groups_are_equal, prompts_are_contiguous
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

#: The switch of the configuration that only these releases have.
SWITCH = "group_reward_norm"

_GAE = "actor.py, compute_advantages: values are zeros without a critic; discount and gae_lambda are 1"
_OUTCOME = claims(_GAE, credit="outcome")
_REWARDS = "cli_args.py, group_reward_norm: normalize final reward of each sequence (GRPO-style)"
_GROUPS = "cli_args.py, group_adv_norm: normalize advantages within each prompt group"

#: Setting -> switches of the configuration, and claims.
FAMILIES: Mapping[str, tuple[Settings, Claims]] = {
    "default": ({"adv_norm": False}, claims(_GAE, credit="outcome", scope="sequence")),
    "group reward": (
        {SWITCH: True, "adv_norm": False, "kl_ctl": 0.0, **UNCLIPPED},
        _OUTCOME | claims(_REWARDS, scope="group", baseline="relative", standardized=True),
    ),
    "group advantage": (
        {"group_adv_norm": True, "adv_norm": False, "kl_ctl": 0.0, **UNCLIPPED},
        _OUTCOME | claims(_GROUPS, scope="group"),
    ),
    "critic": (
        {"adv_norm": False, "discount": 0.9, "gae_lambda": 0.95, "critic": True},
        claims(_GAE, credit="temporal", scope="sequence"),
    ),
    "advantage, batch": ({"adv_norm": True}, _OUTCOME),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the actor's method with each flag, in releases that have these flags."""
    if target.has(NORM) or not target.has(BY_PROMPT) or target.fails(BY_PROMPT) or not target.has(CONFIG):
        return
    known = fields_of(target, CONFIG)
    if SWITCH not in known:
        return
    source = inspect.getsource(target.find(BY_PROMPT))
    for name, (settings, claimed) in FAMILIES.items():
        if all(target.has(CRITIC) if switch == "critic" else switch in known for switch in settings):
            yield from bindable(target, _boundary(name, settings, claimed, source))


def _boundary(name: str, settings: Settings, claimed: Claims, source: str) -> Boundary:
    whole = with_outputs_in(source, advantages_of(name, settings, claimed, BY_PROMPT))
    (step,) = whole.steps
    parts = {key: Knob(key) for key in settings if key != "critic"}
    config = Object(CONFIG, {**parts, "group_size": GroupSize()})
    actor = Object(ACTOR, {"config": config, "engine": Constant(None)}, shared=True)
    grouped = any(switch.startswith("group_") for switch in settings)
    return replace(
        whole,
        steps=(replace(step, arguments={**step.arguments, "self": actor}),),
        requires=(*whole.requires, *((prompts_are_contiguous, groups_are_equal) if grouped else (groups_are_equal,))),
    )
