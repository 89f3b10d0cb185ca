"""verl's policy losses: everything in its registry, each with the metrics that it returns."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from rl_sentinel.adapters.kit.roles import by_role, takes
from rl_sentinel.adapters.kit.value_codecs import Constant, Earlier, IfSet, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.actor import actor, section_names
from rl_sentinel.adapters.verl.advantages import path_of
from rl_sentinel.adapters.verl.aggregation import GIVEN, aggregation
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, ROLES, described
from rl_sentinel.adapters.verl.bypass import BYPASS, BYPASSES, bypassing, holds_correction
from rl_sentinel.adapters.verl.correction import BOTH, WEIGHTS, accepts, weights_of_sampler
from rl_sentinel.adapters.verl.loss_claims import ALGORITHMS, CLAIMS, KNOBS, LOGGED, OTHER, PAIR, RATIO, WEIGHED
from rl_sentinel.adapters.verl.policy_loss import RANGE, loss_outputs, metrics_of
from rl_sentinel.adapters.verl.registries import LOSSES, MODULE, missing, registered
from rl_sentinel.adapters.verl.written import decorated
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

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
                yield from _guarded(target, path_of(function), partial(bypassing, target, function, family))
        for family in FAMILIES if name != BYPASS else ():
            yield from _guarded(target, path_of(function), partial(_registered, target, name, function, family))
    if not registry:
        yield from _guarded(target, PLAIN, partial(_plain, target))


@dataclass(frozen=True, slots=True, kw_only=True)
class LossMode:
    """A loss that the configuration selects by name: numbers, knobs of the actor's and the loss's section, claims."""

    settings: Settings
    section: Mapping[str, Codec]
    policy: Mapping[str, Codec]
    claims: Claims


def loss_mode(target: Target, name: str) -> LossMode:
    """A registered loss with its own numbers, aggregated per sequence."""
    own = NUMBERS.get(name, RANGE)
    policy: dict[str, Codec] = {word: Knob(n) for n, word in _POLICY.get(name, {}).items()}
    said = CLAIMS.get(name, Claims()) | _algorithm(target, name)
    return LossMode(settings=own, section=section_names(own), policy=policy, claims=said)


def selectable(target: Target) -> list[str]:
    """Names of the losses that a worker can be configured with, besides those of the next two.

    PPO's own loss is bound with all that a worker adds to it; bypass mode needs what the sampler logged.
    """
    return [name for name in registered(target, LOSSES) or {} if name not in ("vanilla", BYPASS)]


def _guarded(target: Target, path: str, make: Callable[[], Boundary]) -> Iterator[Boundary | Unbound]:
    return described(target, path, "policy-loss", lambda: [make()], everywhere=True)


def _registered(target: Target, name: str, function: Callable[..., Any], family: str) -> Boundary:
    path = path_of(function)
    target.source(function)
    if family == "default":
        return _default(target, name, function, path)
    mode, counts = loss_mode(target, name), _counts(target, name)
    weighs = takes(function, "rollout_weight") and accepts(target, WEIGHTS["token"])
    counted: dict[str, Codec] = {GIVEN[n]: Knob(n) for n in counts}
    config = actor(target, name, mode.section, counted, mode.policy)
    roles = {**ROLES, "aggregation": Constant("seq-mean-token-mean"), "config": config}
    steps: tuple[Step, ...] = ()
    if weighs:
        step, weights = weights_of_sampler(target)
        steps, roles["rollout_weight"] = (step,), Earlier(weights)
    said = mode.claims | PAIR
    if weighs:
        said |= claims(WEIGHED, corrected_at_most=2.0, corrected_by="row" if name == "geo_mean" else "token")
    reach = f"actor.policy_loss.loss_mode={name}" + (" algorithm.rollout_correction.rollout_is=token" if weighs else "")
    return Boundary(
        path=f"{BOTH} -> {path}" if weighs else path,
        stage="policy-loss",
        steps=(*steps, _step(path, function, roles)),
        outputs=loss_outputs(function, {n: _output(name, n) for n in metrics_of(function)}),
        settings={family: {**mode.settings, **counts}},
        claims=said,
        reach=reach,
    )


def _step(path: str, function: Callable[..., Any], roles: Mapping[str, Codec]) -> Step:
    return Step(
        call=path,
        name="result",
        arguments=by_role(function, roles),
        produced_by={"response_mask": MASK_PRODUCER},
    )


def _default(target: Target, name: str, function: Callable[..., Any], path: str) -> Boundary:
    """The loss as it is configured when it ships, without metrics; only documented knobs are set."""
    said = CLAIMS.get(name, Claims()) | KNOBS.get(name, Claims())
    policy = {word: Constant(NUMBERS[name][n]) for n, word in _POLICY.get(name, {}).items() if name == "dro"}
    tuned = {knob.name.removeprefix("actor."): IfSet(knob.name) for knob in said.knobs}
    roles = {
        **ROLES,
        "aggregation": Constant("token-mean"),
        "config": actor(target, name, tuned, {}, policy),
    }
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(_step(path, function, roles),),
        outputs=loss_outputs(function, {}),
        settings={"default": {}},
        claims=said,
        reach=f"actor.policy_loss.loss_mode={name}",
    )


def _output(name: str, metric: str) -> Output:
    """What a metric of a loss says it is; a range that is not of each token's ratio has a clipped share of its own."""
    other = OTHER.get(name, {}).get(metric)
    said = LOGGED[metric]
    own = metric == "actor/pg_clipfrac" and name not in _TOKEN_RATIO
    own = own or (metric == "actor/pg_clipfrac_lower" and name != "vanilla")
    return other or (replace(said, quantity=f"{said.quantity}.own") if own else said)


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
    """The one loss of releases before there was a registry; their masks are the trainer's, of integers."""
    function = target.find(PLAIN)
    logged = metrics_of(function)
    clips = {"clip": Constant(0.2), "clip_low": Knob("clip_low"), "clip_high": Knob("clip_high")}
    roles = {**ROLES, **clips, "clip_c": Knob("ceiling"), "aggregation": Constant("token-mean")}
    dual = "clip_ratio_c" in inspect.signature(function).parameters
    algorithm = claims(_PLAIN, algorithm="dual clip" if dual else "ppo", aggregation="token-mean")
    return Boundary(
        path=PLAIN,
        stage="policy-loss",
        steps=(_step(PLAIN, function, roles),),
        outputs=loss_outputs(function, {n: LOGGED[n] for n in logged}),
        settings={"default": {"clip_low": 0.2, "clip_high": 0.2, "ceiling": 3.0}},
        claims=RATIO | PAIR | algorithm,
        reach="every PPO or GRPO run",
    )


def _counts(target: Target, name: str) -> Settings:
    """Denominators of the whole mini-batch, where the configuration of this release holds them."""
    section = "verl.workers.config.FSDPActorConfig"
    if name == "geo_mean" or not target.has(section):
        return {}
    return _COUNTED if "global_batch_info" in {f.name for f in fields(target.find(section))} else {}
