"""Boundaries of verl's rollout correction: importance weights and rejection masks."""

import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.result_forms import Detached, KeptMask, RequiresGrad
from rl_sentinel.adapters.kit.value_codecs import Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK, MASK_PRODUCER, data_proto
from rl_sentinel.adapters.verl.importance_weights import REACH, WEIGHED, of_sampler, token_weights
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, Scope, claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Absent, Unbindable

MODULE = "verl.trainer.ppo.rollout_corr_helper"
ADDED = f"{MODULE}.compute_rollout_correction_and_add_to_batch"
CONFIG = "verl.trainer.config.algorithm.RolloutCorrectionConfig"
BOTH = f"{MODULE}.compute_rollout_correction_and_rejection_mask"

#: Rejection option -> threshold, by verl's names. Pairs of bounds are on the ratio, and not symmetric around 1: a
#: wrong sign shows.
_OPTIONS = {
    "token_k1": "0.25_2.0",
    "token_k2": "0.5",
    "token_k3": "0.5",
    "seq_sum_k1": "0.25_2.0",
    "seq_sum_k2": "0.5",
    "seq_sum_k3": "0.5",
    "seq_mean_k1": "0.25_2.0",
    "seq_mean_k2": "0.5",
    "seq_mean_k3": "0.5",
    "seq_max_k2": "0.5",
    "seq_max_k3": "0.5",
    "token_k1,seq_max_k2": "0.25_2.0,1.0",
}

#: Option of the first releases -> name of the setting; these releases take two separate bounds.
_FIRST = {"token": "token", "sequence": "seq", "geometric": "seq mean"}

REJECTIONS: Mapping[str, Settings] = {
    **{name: {"rollout_rs": name, "rollout_rs_threshold": bounds} for name, bounds in _OPTIONS.items()},
    **{
        setting: {"rollout_rs": name, "rollout_rs_threshold": 2.0, "rollout_rs_threshold_lower": 0.5}
        for name, setting in _FIRST.items()
    },
}

#: Importance weights: level, threshold, normalization over the batch.
WEIGHTS: Mapping[str, Settings] = {
    "token": {"rollout_is": "token", "rollout_is_threshold": 2.0},
    "token icepop": {"rollout_is": "token", "rollout_is_threshold": "0.5_2.0"},
    "sequence": {"rollout_is": "sequence", "rollout_is_threshold": 2.0},
    "token normalized": {"rollout_is": "token", "rollout_is_threshold": 2.0, "rollout_is_batch_normalize": True},
    "sequence normalized": {"rollout_is": "sequence", "rollout_is_threshold": 2.0, "rollout_is_batch_normalize": True},
}

WEIGHT = claims(
    "rollout_corr_helper.compute_rollout_correction_weights, docstring: weights of training to rollout policy, per "
    "token or as the product of a sequence; one threshold clamps them, lower_upper makes them 0 outside (IcePop)",
    algorithm="weight of the sampler",
)

KEEP = claims(
    "rollout_corr_helper.compute_rollout_rejection_mask, docstring: divergences of a token, and their sum, mean or "
    "maximum in a sequence; k1 takes bounds of the ratio, the others an upper bound; all that is listed must pass",
    algorithm="kept against the sampler",
)


def neutral_weight(knobs: Settings) -> Settings:
    """Level, upper and optional lower bound, and normalization of a weight; the keys are the names in formulas."""
    low, _, high = str(knobs["rollout_is_threshold"]).rpartition("_")
    neutral: Settings = {
        "level": knobs["rollout_is"],
        "high": float(high),
        "normalized": "rollout_is_batch_normalize" in knobs,
    }
    return {**neutral, "low": float(low)} if low else neutral


def neutral_options(knobs: Settings) -> Settings:
    """Estimator, reduction and bounds of one or two options, as formulas name them; empty for the first releases."""
    names, thresholds = (str(knobs[n]).split(",") for n in ("rollout_rs", "rollout_rs_threshold"))
    if str(knobs["rollout_rs"]) not in _OPTIONS:
        return {}
    pairs = zip(("", "second_"), names, thresholds, strict=False)
    return {first + n: v for first, name, word in pairs for n, v in _neutral_option(name, word).items()}


def _neutral_option(name: str, threshold: str) -> Settings:
    *over, estimator = name.removeprefix("token_").removeprefix("seq_").split("_")
    low, _, high = threshold.rpartition("_")
    bounds = [float(x) for x in (low, high) if x]
    ends = [math.log(x) for x in bounds] if estimator == "k1" else bounds
    neutral: Settings = {"estimator": estimator, "high": ends[-1], **({"low": ends[0]} if len(ends) > 1 else {})}
    return {**neutral, "over": over[0]} if over else neutral


_CONSTANT = claims(
    "rollout_corr_helper.py: weights are detached, since they change the measure and not the objective",
    weights="constant",
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of all weights and all rejections of this release."""
    try:
        target.find(BOTH)
    except Unbindable as why:
        if not isinstance(why, Absent):
            yield Unbound.because(BOTH, "correct", why)
            yield from (Unbound(ADDED, "correct", failing) for failing in (target.fails(ADDED),) if failing)
        return
    corrections = [_weights(name, knobs, _correct(knobs)) for name, knobs in WEIGHTS.items() if supports(target, knobs)]
    if supports(target, WEIGHTS["token"]):
        corrections.append(_bypass_weights(WEIGHTS["token"]))
    corrections += [_rejection(name, knobs, _correct(knobs)) for name, knobs in rejections(target).items()]
    yield from bindable(target, *corrections)
    yield from _steps(target)


def _steps(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of one weight and one rejection, if supported, by the trainer's step that writes into the batch."""
    if failing := target.fails(ADDED):
        yield Unbound(ADDED, "correct", failing)
        return
    if not target.has(ADDED):
        return
    if supports(target, WEIGHTS["token"]):
        yield from bindable(target, _weights("token", WEIGHTS["token"], _correct_batch(WEIGHTS["token"])))
    known = rejections(target)
    for name in [n for n in ("seq_mean_k1", "sequence") if n in known][:1]:
        yield from bindable(target, _rejection(name, known[name], _correct_batch(known[name])))


def rejections(target: Target) -> Mapping[str, Settings]:
    """The rejection options of this release, by name; empty if the module is missing or fails."""
    try:
        source = inspect.getsource(target.module(MODULE))
    except Unbindable:
        return {}
    first = '"geometric"' in source  # "token" and "sequence" are also weight levels, in every release
    return {
        name: knobs
        for name, knobs in REJECTIONS.items()
        if (first if knobs["rollout_rs"] in _FIRST else _names_options(name, source)) and supports(target, knobs)
    }


def _names_options(name: str, source: str) -> bool:
    """Whether the source contains all options of ``name``, and supports lists if there are several."""
    parts = name.split(",")
    return all(f'"{n}"' in source for n in parts) and (len(parts) == 1 or "comma separated" in source)


def supports(target: Target, knobs: Settings) -> bool:
    """Whether this release has these knobs and, if a weight has two bounds, accepts both in one string."""
    try:
        takes = inspect.signature(target.find(BOTH)).parameters
    except Unbindable:
        return False
    bounds = str(knobs.get("rollout_is_threshold"))
    words = "_" not in bounds or "str" in str(takes["rollout_is_threshold"].annotation)
    return set(knobs) <= set(takes) and words


def _verl_knobs(knobs: Settings) -> dict[str, Codec]:
    """The knobs under verl's names. The other settings repeat the knobs under the names in formulas."""
    return {name: Knob(name) for name in knobs if name.startswith("rollout_")}


def _correct(knobs: Settings, trained: Column = Column("old_logprob")) -> Step:  # noqa: B008 - frozen
    """The step that computes weights and mask; ``trained`` is the old policy, or the current one in bypass mode."""
    return Step(
        call=BOTH,
        name="corrected",
        arguments={"0": trained, "1": Column("rollout_logprob"), "2": MASK, **_verl_knobs(knobs)},
        produced_by={"2": MASK_PRODUCER},
    )


def _correct_batch(knobs: Settings) -> Step:
    """The trainer's step that writes weights and mask into its batch."""
    tensors = {
        "old_log_probs": Column("old_logprob"),
        "rollout_log_probs": Column("rollout_logprob"),
        "response_mask": MASK,
    }
    config = Object(CONFIG, {**constants(rollout_is=None), **_verl_knobs(knobs)}, shared=True)
    return Step(
        call=ADDED,
        name="corrected",
        arguments={"batch": data_proto(tensors), "rollout_corr_config": config},
        produced_by={"batch": MASK_PRODUCER},
    )


def reach_of_weights(step: Step) -> str:
    """The settings under which the trainer calls this step of :func:`weights_of_sampler`."""
    return REACH if step.call == WEIGHED else "algorithm.rollout_correction.rollout_is=token"


def weights_of_sampler(target: Target) -> tuple[Step, Use] | None:
    """A step that computes token weights, and a reference to its result; None if the release has no weights.

    The step is cached for equal log-probs, because most laws change only columns that it does not read.
    """
    if not supports(target, WEIGHTS["token"]):
        return (token_weights(), of_sampler()) if target.has(WEIGHED) else None
    step = replace(_correct(WEIGHTS["token"]), arguments={**_correct({}).arguments, **constants(**WEIGHTS["token"])})
    return replace(step, remembered=True), Use("corrected")[0].attribute("batch")["rollout_is_weights"]


def _weights(name: str, knobs: Settings, step: Step) -> Boundary:
    scope: Scope = "sequence" if name.startswith("sequence") else "token"
    place = Use("corrected")[0].attribute("batch")["rollout_is_weights"]
    outputs = {"weight": Output("B T", "ratio", "weight", scope, at=place, form=Padded())}
    return _boundary(step, outputs, f"weight {name}", {**knobs, **neutral_weight(knobs)}, WEIGHT)


def _bypass_weights(knobs: Settings) -> Boundary:
    """The boundary of the weights in bypass mode, from the log-probs of the current policy."""
    place = Use("corrected")[0].attribute("batch")["rollout_is_weights"]
    outputs = {
        "weight": Output("B T", "ratio", "weight", "token", at=place, form=Padded()),
        "weight_requires_grad": Output("", "", "requires_grad", at=place, form=RequiresGrad()),
    }
    step = _correct(knobs, Column("logprob", leaf=True))
    settings = {**knobs, **neutral_weight(knobs)}
    return _boundary(step, outputs, "weight of the current policy", settings, _CONSTANT | WEIGHT)


def _rejection(name: str, knobs: Settings, step: Step) -> Boundary:
    scope: Scope = "sequence" if name.startswith("seq") else "token"
    place = Use("corrected")[1] if step.call == BOTH else Use("corrected")[0].attribute("batch")["response_mask"]
    neutral = neutral_options(knobs)
    outputs = {"keep": Output("B T", "", "keep", scope, at=place, form=KeptMask(Padded()))}
    return _boundary(step, outputs, f"reject {name}", {**knobs, **neutral}, KEEP if neutral else Claims())


def _boundary(step: Step, outputs: Mapping[str, Output], name: str, knobs: Settings, claimed: Claims) -> Boundary:
    return Boundary(
        path=str(step.call),
        stage="correct",
        steps=(step,),
        outputs=outputs,
        settings={name: knobs},
        claims=claimed,
        reach=", ".join(f"algorithm.rollout_correction.{k}={v}" for k, v in knobs.items() if k.startswith("rollout_")),
    )


def log_metrics(
    names: tuple[str, ...], quantities: Mapping[str, str], knobs: Settings
) -> tuple[Step, dict[str, Output]]:
    """The step that computes the correction, and outputs for these logged metrics."""
    place = Use("corrected")[2]
    outputs = {
        name: Output("", "", quantities[name], over="live", at=place[f"rollout_corr/{name}"], form=Detached())
        for name in names
    }
    return _correct(knobs), outputs
