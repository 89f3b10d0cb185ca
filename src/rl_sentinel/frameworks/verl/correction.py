"""verl's rollout correction: importance weights and rejection masks."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, Scope, claims
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.columns import absent, proto

MODULE = "verl.trainer.ppo.rollout_corr_helper"
ADDED = f"{MODULE}.compute_rollout_correction_and_add_to_batch"
CONFIG = "verl.trainer.config.algorithm.RolloutCorrectionConfig"
BOTH = f"{MODULE}.compute_rollout_correction_and_rejection_mask"

#: Options of rejection with a threshold of each kind, by verl's own names; bounds are of the ratio, one further
#: from 1 than the other, so that a sign matters.
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

#: The same by the names of the first releases, with the two bounds apart.
_FIRST = {"token": "token", "sequence": "seq", "geometric": "seq mean"}

REJECTIONS: Mapping[str, Settings] = {
    **{name: {"rollout_rs": name, "rollout_rs_threshold": bounds} for name, bounds in _OPTIONS.items()},
    **{
        told: {"rollout_rs": name, "rollout_rs_threshold": 2.0, "rollout_rs_threshold_lower": 0.5}
        for name, told in _FIRST.items()
    },
}

#: Importance weights: level, threshold, and whether they are normalised over the batch.
WEIGHTS: Mapping[str, Settings] = {
    "token": {"rollout_is": "token", "rollout_is_threshold": 2.0},
    "token icepop": {"rollout_is": "token", "rollout_is_threshold": "0.5_2.0"},
    "sequence": {"rollout_is": "sequence", "rollout_is_threshold": 2.0},
    "token normalised": {"rollout_is": "token", "rollout_is_threshold": 2.0, "rollout_is_batch_normalize": True},
    "sequence normalised": {"rollout_is": "sequence", "rollout_is_threshold": 2.0, "rollout_is_batch_normalize": True},
}

_WEIGHT = claims(
    "rollout_corr_helper.compute_rollout_correction_weights, docstring: weights of training to rollout policy, per "
    "token or as the product of a sequence; one threshold clamps them, lower_upper makes them 0 outside (IcePop)",
    algorithm="weight of the sampler",
)

_KEEP = claims(
    "rollout_corr_helper.compute_rollout_rejection_mask, docstring: divergences of a token, and their sum, mean or "
    "maximum in a sequence; k1 takes bounds of the ratio, the others an upper bound; all that is listed must pass",
    algorithm="kept against the sampler",
)


def _neutral_weight(knobs: Settings) -> Settings:
    """A weight's level and bounds, in the words of formulas."""
    low, _, high = str(knobs["rollout_is_threshold"]).rpartition("_")
    told: Settings = {
        "level": knobs["rollout_is"],
        "high": float(high),
        "normalised": "rollout_is_batch_normalize" in knobs,
    }
    return {**told, "low": float(low)} if low else told


def neutral_options(knobs: Settings) -> Settings:
    """Estimator, what it is taken over, and bounds, of one option or two; empty for those of the first releases."""
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
    told: Settings = {"estimator": estimator, "high": ends[-1], **({"low": ends[0]} if len(ends) > 1 else {})}
    return {**told, "over": over[0]} if over else told


#: Weights, kept mask and metrics of a batch.
_Corrects = Callable[[Target, Batch, Settings], tuple[Any, Tensor, Any]]

_CONSTANT = claims(
    "rollout_corr_helper.py: weights are detached, since they change the measure and not the objective",
    weights="constant",
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """All weights and all rejections through the function that the trainer calls."""
    try:
        target.find(BOTH)
    except Unbindable as why:
        if not absent(why):
            yield Unbound(BOTH, "correct", str(why))
            yield from (Unbound(ADDED, "correct", failing) for failing in (target.fails(ADDED),) if failing)
        return
    for name, knobs in WEIGHTS.items():
        if accepts(target, knobs):
            yield _weights(target, name, knobs)
    if accepts(target, WEIGHTS["token"]):
        yield _of_current(target, WEIGHTS["token"])
    for name, knobs in rejections(target).items():
        yield _rejection(target, name, knobs)
    yield from _steps(target)


def _steps(target: Target) -> Iterator[Boundary | Unbound]:
    """The same as a step of the trainer: what the batch holds afterwards is what trains."""
    if failing := target.fails(ADDED):
        yield Unbound(ADDED, "correct", failing)
        return
    if not target.has(ADDED):
        return
    if accepts(target, WEIGHTS["token"]):
        yield replace(_weights(target, "token", WEIGHTS["token"], added), path=ADDED)
    known = rejections(target)
    for name in [n for n in ("seq_mean_k1", "sequence") if n in known][:1]:
        yield replace(_rejection(target, name, known[name], added), path=ADDED)


def rejections(target: Target) -> Mapping[str, Settings]:
    """The options that this release knows, by their names; no option where it has no rejection."""
    try:
        source = inspect.getsource(target.module(MODULE))
    except Unbindable:
        return {}
    first = '"geometric"' in source  # the others are also levels of a weight, in every release
    return {
        name: knobs
        for name, knobs in REJECTIONS.items()
        if (first if knobs["rollout_rs"] in _FIRST else _written(name, source)) and accepts(target, knobs)
    }


def _written(name: str, source: str) -> bool:
    """Whether the module names every option of a list, and takes lists where it is one of several."""
    parts = name.split(",")
    return all(f'"{n}"' in source for n in parts) and (len(parts) == 1 or "comma separated" in source)


def accepts(target: Target, knobs: Settings) -> bool:
    """Whether this release has these knobs, and takes two bounds in one word where one is given."""
    try:
        takes = inspect.signature(target.find(BOTH)).parameters
    except Unbindable:
        return False
    bounds = str(knobs.get("rollout_is_threshold"))
    words = "_" not in bounds or "str" in str(takes["rollout_is_threshold"].annotation)
    return set(knobs) <= set(takes) and words


def corrected(
    target: Target, batch: Batch, settings: Settings, current: Tensor | None = None
) -> tuple[Any, Tensor, Any]:
    """Weights, kept mask and metrics; the trained policy is the old one, or ``current`` as in bypass mode."""
    mask = batch.mask.to(torch.int64)
    trained = batch.old_logprob if current is None else current
    own = {k: v for k, v in settings.items() if k.startswith("rollout_")}
    weights, kept, metrics = target.call(BOTH, trained, batch.rollout_logprob, mask, **own)
    return weights, kept, metrics


def added(target: Target, batch: Batch, settings: Settings) -> tuple[Any, Tensor, Any]:
    """As :func:`corrected`, of the batch that the trainer goes on with."""
    tensors = {
        "old_log_probs": batch.old_logprob,
        "rollout_log_probs": batch.rollout_logprob,
        "response_mask": batch.mask.to(torch.int64),
    }
    own = {k: v for k, v in settings.items() if k.startswith("rollout_")}
    config = target.call(CONFIG, **({"rollout_is": None} | own))
    data, metrics = target.call(ADDED, proto(target, tensors, {}, {}), config)
    return data, data.batch["response_mask"], metrics


def remembered(target: Target) -> Callable[[Batch], Tensor]:
    """The weights that the correction makes; most laws change what it does not read, so that it is asked once."""
    known: dict[bytes, Tensor] = {}

    def weights(batch: Batch) -> Tensor:
        read = (batch.old_logprob.detach(), batch.rollout_logprob.detach(), batch.mask)
        key = b"".join(
            x.contiguous().view(torch.uint8).numpy().tobytes() + str((x.dtype, *x.shape)).encode() for x in read
        )
        if key not in known:
            known[key] = corrected(target, batch, WEIGHTS["token"])[0].batch["rollout_is_weights"]
        return known[key].clone()

    return weights


def _weights(target: Target, name: str, knobs: Settings, correct: _Corrects = corrected) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        weights = correct(target, batch, settings)[0]
        return {"weight": weights.batch["rollout_is_weights"]}

    scope: Scope = "sequence" if name.startswith("sequence") else "token"
    outputs = {"weight": Output("B T", "ratio", "weight", scope)}
    return _boundary(call, outputs, f"weight {name}", {**knobs, **_neutral_weight(knobs)}, _WEIGHT)


def _of_current(target: Target, knobs: Settings) -> Boundary:
    """The weights as bypass mode asks for them, from log-probs of the policy that is being trained."""

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        logprob = batch.logprob.detach().clone().requires_grad_()
        weight = corrected(target, batch, settings, logprob)[0].batch["rollout_is_weights"]
        return {"weight": weight.detach(), "weight_requires_grad": torch.tensor(float(weight.requires_grad))}

    outputs = {"weight": Output("B T", "ratio", "weight", "token")}
    name = "weight of the current policy"
    boundary = _boundary(call, outputs, name, {**knobs, **_neutral_weight(knobs)}, _CONSTANT | _WEIGHT)
    flag = {"weight_requires_grad": Output("", "", "requires_grad")}
    reads = frozenset({"logprob", "rollout_logprob", "mask"})
    return replace(boundary, reads=reads, outputs={**boundary.outputs, **flag})


def _rejection(target: Target, name: str, knobs: Settings, correct: _Corrects = corrected) -> Boundary:
    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        kept = correct(target, batch, settings)[1]
        return {"keep": ((kept > 0) | ~batch.mask).float()}

    scope: Scope = "sequence" if name.startswith("seq") else "token"
    told = neutral_options(knobs)
    return _boundary(
        call,
        {"keep": Output("B T", "", "keep", scope)},
        f"reject {name}",
        {**knobs, **told},
        _KEEP if told else Claims(),
    )


def _boundary(
    call: Any,  # noqa: ANN401 - a call
    outputs: Mapping[str, Output],
    name: str,
    knobs: Settings,
    said: Claims | None = None,
) -> Boundary:
    return Boundary(
        path=BOTH,
        stage="correct",
        call=call,
        reads=frozenset({"old_logprob", "rollout_logprob", "mask"}),
        outputs=outputs,
        settings={name: knobs},
        claims=said or Claims(),
        reach=", ".join(f"algorithm.rollout_correction.{k}={v}" for k, v in knobs.items() if k.startswith("rollout_")),
    )
