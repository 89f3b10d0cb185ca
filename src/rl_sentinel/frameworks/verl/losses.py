"""verl's policy losses: everything in its registry, each with the metrics that it hands back."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.binding import bound, takes
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.actor import SECTION, actor
from rl_sentinel.frameworks.verl.advantages import path_of
from rl_sentinel.frameworks.verl.aggregation import GIVEN, aggregation
from rl_sentinel.frameworks.verl.bypass import BYPASS, BYPASSES, bypassing, holds_correction
from rl_sentinel.frameworks.verl.columns import ROLES, taken
from rl_sentinel.frameworks.verl.correction import BOTH, WEIGHTS, accepts, remembered
from rl_sentinel.frameworks.verl.loss_claims import ALGORITHMS, CLAIMS, KNOBS, LOGGED, OTHER, PAIR, RATIO, WEIGHED
from rl_sentinel.frameworks.verl.policy_loss import RANGE, answered, boundary, metrics_of
from rl_sentinel.frameworks.verl.registries import LOSSES, MODULE, missing, registered
from rl_sentinel.frameworks.verl.written import decorated

PLAIN = f"{MODULE}.compute_policy_loss"

_PLAIN = "core_algos.compute_policy_loss, docstring: the clipped policy objective of PPO, averaged over the mask"

#: How a token's loss becomes one number; the second family has all that changes a loss, and the metrics.
FAMILIES = ("default", "seq-mean-token-mean")

#: Numbers of a loss, where they are not PPO's.
NUMBERS: Mapping[str, Settings] = {
    "sapo": {"temperature": 1.5, "negative_temperature": 2.0},
    "gpg": {},
    "dro": {"penalty": 0.5},
    "clip_cov": {"clip_low": 0.2, "clip_high": 0.3, "share": 0.4, "cov_low": 0.125, "cov_high": 0.75},
    "kl_cov": {"share": 0.4, "penalty": 0.75},
    "gspo": {"clip_low": 0.2, "clip_high": 0.3},
    "cispo": {"clip_low": 0.2, "clip_high": 0.3},
    "geo_mean": {"clip_low": 0.2, "clip_high": 0.3},
    "dppo_tv": {"clip_low": 0.05, "clip_high": 0.1, "ceiling": 4.0},
    "dppo_kl": {"clip_low": 0.01, "clip_high": 0.02, "ceiling": 4.0},
}

#: Of these, the names that they have in the section of the policy loss.
_POLICY: Mapping[str, Mapping[str, str]] = {
    "dro": {"penalty": "dro_beta"},
    "clip_cov": {"share": "clip_cov_ratio", "cov_low": "clip_cov_lb", "cov_high": "clip_cov_ub"},
    "kl_cov": {"share": "kl_cov_ratio", "penalty": "ppo_kl_coef"},
}

#: Losses whose range is of each token's ratio, so that the clipped share can be recomputed.
_TOKEN_RATIO = ("vanilla", "cispo")

#: Denominators as the trainer counts them over the mini-batch, and how many ranks there are.
_COUNTED: Settings = {"tokens": 24, "rows": 6, "ranks": 2}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per registered loss and family of settings, or the one loss before the registry.

    In the second family a loss is weighted for the sampler, by the weights that the correction makes.
    """
    try:
        registry = registered(target, LOSSES) or {}
    except Unbindable as why:
        paths = [f"{MODULE}.{name}" for name in decorated(target, LOSSES)]
        yield from (Unbound(path, "policy-loss", str(why)) for path in paths or [PLAIN])
        return
    if registry:
        yield from missing(target, LOSSES)
    failing = target.fails(BOTH)
    for name, function in registry.items():
        if failing and name != BYPASS and takes(function, "rollout_weight"):  # bypass mode fails when it is called
            yield Unbound(f"{BOTH} -> {path_of(function)}", "policy-loss", failing)
        if name == BYPASS and holds_correction(target):
            for family in BYPASSES:
                yield _guarded(path_of(function), partial(bypassing, target, function, family))
        for family in FAMILIES if name != BYPASS else ():
            yield _guarded(path_of(function), partial(_registered, target, name, function, family))
    if not registry:
        yield _guarded(PLAIN, partial(_plain, target))


def _guarded(path: str, make: Callable[[], Boundary]) -> Boundary | Unbound:
    try:
        return make()
    except Unbindable as why:
        return Unbound(path, "policy-loss", str(why))


def _registered(target: Target, name: str, function: Callable[..., Any], family: str) -> Boundary:
    path = path_of(function)
    target.source(function)
    bound(function, dict.fromkeys((*ROLES, "aggregation", "config")))
    if family == "default":
        return _default(target, name, function, path)
    logged = metrics_of(function)
    own = NUMBERS.get(name, RANGE)
    weighs = takes(function, "rollout_weight") and accepts(target, WEIGHTS["token"])
    counts, weights = _counts(target, name), remembered(target)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = taken(batch, function)
        policy = {word: settings[n] for n, word in _POLICY.get(name, {}).items()}
        knobs = {word: settings[n] for n, word in SECTION.items() if n in settings}
        config = actor(target, name, knobs, {GIVEN[n]: settings[n] for n in counts}, **policy)
        given |= {"aggregation": "seq-mean-token-mean", "config": config}
        if weighs:
            given["rollout_weight"] = weights(batch)
        return answered(target.call(path, **bound(function, given)), logged)

    said = CLAIMS.get(name, Claims()) | PAIR | _algorithm(target, name)
    if weighs:
        said |= claims(WEIGHED, corrected_at_most=2.0, corrected_by="row" if name == "geo_mean" else "token")
    outputs = {n: _output(name, n) for n in logged}
    reach = f"actor.policy_loss.loss_mode={name}" + (" algorithm.rollout_correction.rollout_is=token" if weighs else "")
    made = boundary(f"{BOTH} -> {path}" if weighs else path, call, said, {family: {**own, **counts}}, reach, outputs)
    return replace(made, reads=made.reads | {"rollout_logprob"}) if weighs else made


def _default(target: Target, name: str, function: Callable[..., Any], path: str) -> Boundary:
    """The loss as it is configured when it ships, without metrics."""
    policy = {word: NUMBERS[name][n] for n, word in _POLICY.get(name, {}).items() if name == "dro"}

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = taken(batch, function)
        knobs = {n.removeprefix("actor."): v for n, v in settings.items()}
        given |= {"aggregation": "token-mean", "config": actor(target, name, knobs, {}, **policy)}
        return answered(target.call(path, **bound(function, given)), ())

    said = CLAIMS.get(name, Claims()) | KNOBS.get(name, Claims())
    return boundary(path, call, said, {"default": {}}, f"actor.policy_loss.loss_mode={name}", {})


def _output(name: str, metric: str) -> Output:
    """What a metric of a loss says it is; a range that is not of each token's ratio has a clipped share of its own."""
    other = OTHER.get(name, {}).get(metric)
    own = metric == "actor/pg_clipfrac" and name not in _TOKEN_RATIO
    return other or (replace(LOGGED[metric], quantity="clip_fraction.own") if own else LOGGED[metric])


def _algorithm(target: Target, name: str) -> Claims:
    """The algorithm of a loss and how it is aggregated, where its docstring says so."""
    if name not in ALGORITHMS:
        return Claims()
    said = ALGORITHMS[name] | aggregation(target, "seq-mean-token-mean")
    if name == "geo_mean":
        said |= claims(
            "compute_policy_loss_geo_mean: the mean over the batch of one loss for each sequence", rows="all"
        )
    return said


def _plain(target: Target) -> Boundary:
    function = target.find(PLAIN)
    logged = metrics_of(function)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = taken(batch, function)
        given["mask"] = batch.mask.float()
        given |= {"clip": 0.2, "clip_low": settings["clip_low"], "clip_high": settings["clip_high"]}
        given["clip_c"] = settings["ceiling"]
        given["aggregation"] = "token-mean"
        return answered(target.call(PLAIN, **bound(function, given)), logged)

    dual = "clip_ratio_c" in inspect.signature(function).parameters
    family: Settings = {"clip_low": 0.2, "clip_high": 0.2, "ceiling": 3.0}
    said = RATIO | PAIR | claims(_PLAIN, algorithm="dual clip" if dual else "ppo", aggregation="token-mean")
    return boundary(PLAIN, call, said, {"default": family}, "every PPO or GRPO run", {n: LOGGED[n] for n in logged})


def _counts(target: Target, name: str) -> Settings:
    """Denominators of the whole mini-batch, where the configuration of this release holds them."""
    section = "verl.workers.config.FSDPActorConfig"
    if name == "geo_mean" or not target.has(section):
        return {}
    return _COUNTED if "global_batch_info" in {f.name for f in fields(target.find(section))} else {}
