"""AReaL's advantages: the actor's methods from raw rewards to normalized advantages."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from rl_sentinel.adapters.areal.arguments import (
    ACTOR,
    CONFIG,
    CRITIC,
    NORM,
    ROLLOUT,
    actor,
    knob,
    largest_group,
    padded_to_longest,
    rollout,
    unfinished_are_longest,
)
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachPrompt
from rl_sentinel.adapters.kit.requirements import group_sizes, groups_are_equal, prompts_are_contiguous
from rl_sentinel.adapters.kit.sequences import FullSequence, PromptBatches
from rl_sentinel.adapters.kit.value_codecs import Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Inputs
from rl_sentinel.core.errors import Unbindable

PATH = f"{ACTOR}._compute_advantages"
NORMALIZATION = "areal.utils.data.Normalization.__call__"

#: The method that the trainer calls with one item per prompt; it concatenates them and calls :data:`PATH`.
BY_PROMPT = f"{ACTOR}.compute_advantages"

#: A bound that no reward reaches: these settings do not audit the clipping.
UNCLIPPED: Settings = {"reward_clip": 1e6}

_GAE = "actor.py, _compute_advantages: values are zeros without a critic; discount and gae_lambda are 1"
_NO_EOS = "cli_args.py, mask_no_eos_with_zero: mask truncated generations (no EOS token), exclude from training"
_BY_GROUP = "cli_args.py, NormConfig: mean and deviation of level 'group', of group_size rows each"

_MATRIX = "docs/en/algorithms/grpo_series.md, Algorithm Configuration Matrix and the formulas below it"

_OUTCOME = claims(_GAE, credit="outcome")
_DOCUMENTED = _OUTCOME | claims(_MATRIX, scope="group", baseline="relative")
_SUPPRESSES = claims(_NO_EOS, suppresses="unscored")

#: Items may have different numbers of rows.
_ITEMS = (
    "areal/infra/remote_inf_engine.py, prepare_batch: one trajectory per accepted rollout, whose batch size can vary; "
    "GroupedRolloutWorkflow drops responses that are None, 'using remaining results'"
)

#: The condition under which prompts have different numbers of responses.
_UNEVEN = (
    "a workflow that returns None for some responses of a prompt, or one row per interaction of an agent "
    "(single-turn workflows of AReaL give every prompt all its responses)"
)

#: Setting -> settings and claims; ``reward mean``, ``adv std`` and similar are the level of a statistic.
FAMILIES: Mapping[str, tuple[Settings, Claims]] = {
    "default": ({}, claims(_GAE, credit="outcome", scope="sequence")),
    "group reward": (
        {"reward mean": "group", "reward std": "group", "kl_ctl": 0.0, **UNCLIPPED},
        _OUTCOME | claims(_BY_GROUP, scope="group", baseline="relative", standardized=True),
    ),
    "group reward, mean only": (
        {"reward mean": "group", "reward std": None, "kl_ctl": 0.0, **UNCLIPPED},
        _OUTCOME | claims(_BY_GROUP, scope="group", baseline="relative", standardized=False),
    ),
    "group reward, leave one out": (
        {"reward mean": "group", "reward std": None, "reward leave1out": True, "kl_ctl": 0.0, **UNCLIPPED},
        _OUTCOME | claims(_BY_GROUP, scope="group", baseline="relative", standardized=False),
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
    "over advantages, Dr. GRPO": (
        {"adv mean": "group", "adv std": None, "kl_ctl": 0.0, **UNCLIPPED},
        _DOCUMENTED | claims(_MATRIX, algorithm="grpo", standardized=False),
    ),
    "over advantages, RLOO": (
        {"adv mean": "group", "adv std": None, "adv leave1out": True, "kl_ctl": 0.0, **UNCLIPPED},
        _DOCUMENTED | claims(_MATRIX, algorithm="rloo", standardized=False),
    ),
    "advantage, batch": ({"adv mean": "batch", "adv std": "batch"}, _OUTCOME),
}

#: The function that treats turns as steps, and its setting; without a KL penalty, which is added per token.
BY_TURN = "areal.trainer.ppo.gae._compute_turn_level_gae"
_TURNS: Settings = {
    "gae_timestep_unit": "turn",
    "discount": 0.9,
    "gae_lambda": 0.95,
    "critic": True,
    "kl_ctl": 0.0,
    **UNCLIPPED,
}
_TURN = "cli_args.py, gae_timestep_unit: 'turn' treats each generated assistant turn as one timestep"
_TURN_CLAIMS = claims(_TURN, credit="temporal", scope="sequence")

_DATA, _FORM = Use("data"), FullSequence(shift=1)

#: Output -> key of the data that the method writes it to.
OUTPUTS: Mapping[str, str] = {"advantage": "advantages", "returns": "returns", "kl_reward": "kl_rewards"}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the actor's method with each setting, on the whole batch.

    If the trainer passes one item per prompt, settings with group statistics are also bound that way. Early releases
    are not bound here: see ``early_advantages``.
    """
    try:
        # In releases without PATH, the method BY_PROMPT takes the whole batch.
        path = PATH if target.has(PATH) else BY_PROMPT
        for name in (path, CONFIG):
            target.find(name)
    except Unbindable as why:
        yield Unbound.because(PATH, "advantage", why)
        return
    if not target.has(NORM):
        return  # early releases: early_advantages.py
    by_turn = {"turns as steps": (_TURNS, _TURN_CLAIMS)} if target.has(BY_TURN) else {}
    alone = () if _normalizes_one(target) else (no_lone_response,)
    source, leave_one_out = inspect.getsource(target.find(path)), "mean_leave1out" in fields_of(target, NORM)
    for name, (settings, claimed) in {**FAMILIES, **by_turn}.items():
        if not leave_one_out and any(key.endswith("leave1out") for key in settings):
            continue
        if "critic" in settings and not target.has(CRITIC):
            continue
        boundary = with_outputs_in(source, advantages_of(name, settings, claimed, path))
        requires = (*boundary.requires, *(alone if "group" in settings.values() else ()))
        yield from bindable(target, replace(boundary, requires=requires))
    if path == PATH and target.has(BY_PROMPT):
        for name, (settings, claimed) in FAMILIES.items():
            if "group" in settings.values():
                yield from bindable(target, _by_prompt(advantages_of(name, settings, claimed, path)))


def fields_of(target: Target, path: str) -> frozenset[str]:
    """The field names of a dataclass in the release."""
    return frozenset(field.name for field in fields(target.find(path)))


def with_outputs_in(source: str, boundary: Boundary) -> Boundary:
    """The boundary; without the output ``returns`` if the source of the method does not compute returns."""
    outputs = {key: output for key, output in boundary.outputs.items() if key != "returns" or '"returns"' in source}
    return replace(boundary, outputs=outputs)


def no_lone_response(inputs: Inputs) -> str:
    """The reason to skip a batch where a prompt has only one response; empty otherwise."""
    return "a prompt has one response, which this release cannot normalize" if 1 in group_sizes(inputs) else ""


def _normalizes_one(target: Target) -> bool:
    """Whether the release's normalization accepts a batch of one reward; some releases read an axis that it lacks."""
    if not target.has(NORMALIZATION) or target.fails(NORMALIZATION):
        return True
    return ".shape[1]" not in inspect.getsource(target.find(NORMALIZATION))


def advantages_of(name: str, settings: Settings, claimed: Claims, path: str) -> Boundary:
    """The boundary of one setting. The data has reference log-probs with a KL penalty, and values with a critic."""
    has_kl = settings.get("kl_ctl") != 0.0
    by_turn = "gae_timestep_unit" in settings
    passes = [
        *(["ref_logp"] if has_kl else []),
        *(["values"] if settings.get("critic") else []),
        *(["turn_ids"] if by_turn else []),
    ]
    masked = bool(settings.get("mask_no_eos_with_zero"))
    boundary = one_call(
        path=path,
        stage="advantage",
        call=path,
        arguments={"self": actor(settings), "data": rollout(*passes)},
        produced_by={
            "data": f"{ROLLOUT}; areal/trainer/rl_trainer.py, train: ref_logp if kl_ctl > 0, values with a critic, "
            "prox_logp only if log-probs are recomputed"
        },
        unused=frozenset({"token", "version", *(() if has_kl else ("old_logprob",))}),
        outputs={
            name: Output("B T", "reward", name, at=_DATA[key], form=_FORM)
            for name, key in OUTPUTS.items()
            if has_kl or name != "kl_reward"
        },
        settings={name: settings},
        claims=claimed,
        reach=", ".join(knob(k, v) for k, v in settings.items() if k != "critic") or "default settings",
        requires=(
            padded_to_longest,
            *((prompts_are_contiguous, groups_are_equal) if "group" in settings.values() else ()),
            *((unfinished_are_longest,) if masked else ()),
        ),
    )
    # The data does not say which response is finished: the actor treats the longest sequences as unfinished.
    return replace(boundary, reads=boundary.reads | {"scored"}) if masked else boundary


def _by_prompt(boundary: Boundary) -> Boundary:
    """The boundary of the trainer's call with one item per prompt.

    Prompts may have different numbers of responses.
    """
    (step,) = boundary.steps
    (settings,) = boundary.settings.values()
    arguments = {"self": actor(settings, Derived(largest_group)), "data": EachPrompt(step.arguments["data"])}
    produced_by = {"data": f"{_ITEMS}; {step.produced_by['data']}"}
    call = replace(step, call=BY_PROMPT, name="prompts", arguments=arguments, produced_by=produced_by)
    results = {
        name: replace(output, at=Use("prompts"), form=PromptBatches(OUTPUTS[name], _FORM))
        for name, output in boundary.outputs.items()
    }
    return replace(
        boundary,
        path=BY_PROMPT,
        steps=(call,),
        outputs=results,
        reach=f"{boundary.reach}; {_UNEVEN}",
        requires=tuple(condition for condition in boundary.requires if condition is not groups_are_equal),
    )
