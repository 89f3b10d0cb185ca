"""Boundaries of verl's policy losses, with the metrics that they return."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.roles import by_role, takes
from rl_sentinel.adapters.kit.value_codecs import Constant, Earlier, IfSet, Knob, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.actor import actor, section_names
from rl_sentinel.adapters.verl.advantages import path_of
from rl_sentinel.adapters.verl.aggregation import PARAMETERS, aggregation
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER, ROLES
from rl_sentinel.adapters.verl.bypass import BYPASS, BYPASSES, bypass_boundary, has_correction_section
from rl_sentinel.adapters.verl.correction import BOTH, reach_of_weights, weights_of_sampler
from rl_sentinel.adapters.verl.loss_claims import ALGORITHMS, CLAIMS, KNOBS, LOGGED, PAIR, RATIO, UNUSUAL, WEIGHTED
from rl_sentinel.adapters.verl.policy_loss import RANGE, loss_outputs, metrics_of
from rl_sentinel.adapters.verl.registries import LOSSES, MODULE, failed_registrations, registered
from rl_sentinel.adapters.verl.source_names import decorated_functions
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

PLAIN = f"{MODULE}.compute_policy_loss"

_PLAIN = "core_algos.compute_policy_loss, docstring: the clipped policy objective of PPO, averaged over the mask"

#: Setting families, by aggregation mode; the second one has all numbers, importance weights and metrics.
FAMILIES = ("default", "seq-mean-token-mean")

#: Loss -> its numbers, if they are not those of PPO.
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

#: Loss -> number -> its name in the policy-loss section.
_POLICY: Mapping[str, Mapping[str, str]] = {
    "dro": {"penalty": "dro_beta"},
    "clip_cov": {"share": "clip_cov_ratio", "cov_low": "clip_cov_lb", "cov_high": "clip_cov_ub"},
    "kl_cov": {"share": "kl_cov_ratio", "penalty": "ppo_kl_coef"},
}

#: Losses that clip the ratio of each token, so that the clip fraction can be recomputed.
_TOKEN_RATIO = ("vanilla", "cispo")

#: Denominators that the trainer counts over the mini-batch, and the number of ranks.
_COUNTED: Settings = {"tokens": 24, "rows": 6, "ranks": 2}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per registered loss and setting family, or the single loss of releases without a registry.

    Bypass mode has its own families. In the second family, a loss that takes importance weights gets those of the
    sampler, in releases that compute them.
    """
    try:
        registry = registered(target, LOSSES) or {}
    except Unbindable as why:
        paths = [f"{MODULE}.{name}" for name in decorated_functions(target, LOSSES)]
        yield from (Unbound.because(path, "policy-loss", why) for path in paths or [PLAIN])
        return
    if registry:
        yield from failed_registrations(target, LOSSES)
    failing = target.fails(BOTH)
    for name, function in registry.items():
        if failing and name != BYPASS and takes(function, "rollout_weight"):  # bypass mode reports the failure itself
            yield Unbound(f"{BOTH} -> {path_of(function)}", "policy-loss", failing)
        if name == BYPASS and has_correction_section(target):
            for family in BYPASSES:
                yield from _guarded(target, path_of(function), partial(bypass_boundary, target, function, family))
        for family in FAMILIES if name != BYPASS else ():
            yield from _guarded(target, path_of(function), partial(_registered, target, name, function, family))
    if not registry:
        yield from _guarded(target, PLAIN, partial(_plain, target))


@dataclass(frozen=True, slots=True, kw_only=True)
class LossMode:
    """A loss that the configuration selects by name: numbers, knobs of the actor and loss sections, claims."""

    settings: Settings
    section: Mapping[str, Codec]
    policy: Mapping[str, Codec]
    claims: Claims


def loss_mode(target: Target, name: str) -> LossMode:
    """The numbers, knobs and claims of a registered loss with a sequence mean."""
    numbers = NUMBERS.get(name, RANGE)
    policy: dict[str, Codec] = {word: Knob(n) for n, word in _POLICY.get(name, {}).items()}
    claimed = CLAIMS.get(name, Claims()) | _algorithm(target, name)
    return LossMode(settings=numbers, section=section_names(numbers), policy=policy, claims=claimed)


def selectable(target: Target) -> list[str]:
    """Names of the losses that a worker can select, except the PPO loss and bypass mode.

    The PPO loss is bound separately in each mode; bypass mode needs the log-probs of the sampler.
    """
    return [name for name in registered(target, LOSSES) or {} if name not in ("vanilla", BYPASS)]


def _guarded(target: Target, path: str, make: Callable[[], Boundary]) -> Iterator[Boundary | Unbound]:
    return try_bind(target, path, "policy-loss", lambda: [make()], required=True)


def _registered(target: Target, name: str, function: Callable[..., Any], family: str) -> Boundary:
    path = path_of(function)
    target.source(function)
    if family == "default":
        return _default(target, name, function, path)
    mode, counts = loss_mode(target, name), _counts(target, name)
    weighs = weights_of_sampler(target) if takes(function, "rollout_weight") else None
    counted: dict[str, Codec] = {PARAMETERS[n]: Knob(n) for n in counts}
    config = actor(target, name, mode.section, counted, mode.policy)
    roles = {**ROLES, "aggregation": Constant("seq-mean-token-mean"), "config": config}
    steps: tuple[Step, ...] = ()
    if weighs:
        steps, roles["rollout_weight"] = weighs[:1], Earlier(weighs[1])
    claimed = mode.claims | PAIR
    if weighs:
        claimed |= claims(WEIGHTED, corrected_at_most=2.0, corrected_by="row" if name == "geo_mean" else "token")
    reach = f"actor.policy_loss.loss_mode={name}" + (f" {reach_of_weights(weighs[0])}" if weighs else "")
    return Boundary(
        path=f"{weighs[0].call} -> {path}" if weighs else path,
        stage="policy-loss",
        steps=(*steps, _step(path, function, roles)),
        outputs=loss_outputs(function, {n: _output(name, n) for n in metrics_of(function)}),
        settings={family: {**mode.settings, **counts}},
        claims=claimed,
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
    """The boundary of the loss with its default configuration, without metrics; documented knobs are set."""
    claimed = CLAIMS.get(name, Claims()) | KNOBS.get(name, Claims())
    policy = {word: Constant(NUMBERS[name][n]) for n, word in _POLICY.get(name, {}).items() if name == "dro"}
    tuned = {knob.name.removeprefix("actor."): IfSet(knob.name) for knob in claimed.knobs}
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
        claims=claimed,
        reach=f"actor.policy_loss.loss_mode={name}",
    )


def _output(name: str, metric: str) -> Output:
    """The output of a logged metric; ``.own`` marks a clip fraction that is not defined as in PPO."""
    other = UNUSUAL.get(name, {}).get(metric)
    usual = LOGGED[metric]
    own = metric == "actor/pg_clipfrac" and name not in _TOKEN_RATIO
    own = own or (metric == "actor/pg_clipfrac_lower" and name != "vanilla")
    return other or (replace(usual, quantity=f"{usual.quantity}.own") if own else usual)


def _algorithm(target: Target, name: str) -> Claims:
    """The claims about algorithm and aggregation of a loss; empty if its docstring names no algorithm."""
    if name not in ALGORITHMS:
        return Claims()
    claimed = ALGORITHMS[name] | aggregation(target, "seq-mean-token-mean")
    if name == "geo_mean":
        claimed |= claims(
            "compute_policy_loss_geo_mean: the mean over the batch of one loss for each sequence", rows="all"
        )
    return claimed


def _plain(target: Target) -> Boundary:
    """The boundary of the single loss of releases without a registry."""
    function = target.find(PLAIN)
    logged = metrics_of(function)
    clips = {"clip": Constant(0.2), **knobs("clip_low", "clip_high")}
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
    """Denominators of the whole mini-batch; empty for geo_mean, or if the release's configuration has none."""
    section = "verl.workers.config.FSDPActorConfig"
    if name == "geo_mean" or not target.has(section):
        return {}
    return _COUNTED if "global_batch_info" in {f.name for f in fields(target.find(section))} else {}
