"""verl's policy losses: everything in its registry, each with the metrics that it hands back."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Claim, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.binding import bound, takes
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.advantages import path_of
from rl_sentinel.frameworks.verl.aggregation import GIVEN, aggregation
from rl_sentinel.frameworks.verl.columns import ROLES, claims
from rl_sentinel.frameworks.verl.correction import BOTH, WEIGHTS, accepts, remembered
from rl_sentinel.frameworks.verl.registries import LOSSES, MODULE, missing, registered
from rl_sentinel.frameworks.verl.written import decorated

PLAIN = f"{MODULE}.compute_policy_loss"

_RATIO = claims(
    "core_algos.py, the loss's docstring: log-probabilities under the old policy and under the current one, whose "
    "exponentiated difference the code calls ratio",
    ratio="yes",
)

_CHOICE = "core_algos.py, docstrings: clip_cov_ratio and kl_cov_ratio choose tokens by their covariance"

#: Registered name -> the algorithm, where the loss's docstring says that it is this one.
ALGORITHMS: Mapping[str, Claim] = {
    name: Claim(algorithm, f"core_algos.compute_policy_loss_{name}, docstring: {words}")
    for name, algorithm, words in (
        ("vanilla", "dual clip", "the clipped objective of arXiv 1707.06347, dual-clip PPO of arXiv 1912.09729"),
        ("dppo_tv", "dppo tv", "DPPO-Binary-TV, arXiv 2602.04879"),
        ("dppo_kl", "dppo kl", "DPPO-Binary-KL, arXiv 2602.04879"),
        ("gspo", "gspo", "GSPO, arXiv 2507.18071"),
        ("sapo", "sapo", "SAPO, arXiv 2511.20347"),
        ("gpg", "reinforce", "policy gradient loss computed via GPG"),
        ("clip_cov", "clip-cov", "Clip-Cov, after PRIME-RL/Entropy-Mechanism-of-RL"),
        ("kl_cov", "kl-cov", "a KL penalty on the top-k covariance values, after PRIME-RL/Entropy-Mechanism-of-RL"),
        ("geo_mean", "gmpo", "GMPO, arXiv 2507.20673"),
        ("dro", "quadratic penalty", "Direct Reward Optimization with a quadratic log-ratio penalty"),
        ("cispo", "cispo", "CISPO, arXiv 2506.13585"),
    )
}

#: By registered name; a loss that is not here is judged by the laws that need no claim.
CLAIMS: Mapping[str, Mapping[str, Claim]] = {
    "vanilla": _RATIO,
    "gspo": _RATIO,
    "sapo": _RATIO,
    "cispo": _RATIO,
    "dppo_tv": _RATIO,
    "dppo_kl": _RATIO,
    "geo_mean": _RATIO
    | claims("compute_policy_loss_geo_mean, comment: advantages at the sequence level only", scope="sequence"),
    "clip_cov": claims(_CHOICE, on_policy_gradient="other", row_order="yes"),
    "kl_cov": claims(_CHOICE, on_policy_gradient="other", row_order="yes"),
}

#: Settings that the documentation names for a loss, with two values that must not give the same.
KNOBS: Mapping[str, Mapping[str, Claim]] = {
    "vanilla": {
        "knob:actor.clip_ratio": Claim(
            "0.1|0.4", "verl.readthedocs.io/en/latest/algo/ppo.html: actor.clip_ratio is the PPO clip range"
        )
    },
}

#: Logged name -> what it says it is; all are means over the response mask.
LOGGED: Mapping[str, Output] = {
    "actor/pg_clipfrac": Output("", "", "clip_fraction", over="live"),
    "actor/ppo_kl": Output("", "nats", "kl.k1", over="live"),
    "actor/pg_clipfrac_lower": Output("", "", "clip_fraction_lower", over="live"),
}

#: What differs of one loss: a share of the tokens that were chosen is no mean; a name says the absolute value.
_OTHER: Mapping[str, Mapping[str, Output]] = {
    "clip_cov": {"actor/pg_clipfrac": Output("", "", "chosen")},
    "kl_cov": {"actor/ppo_kl": Output("", "nats", "kl.abs", over="live")},
}

_PAIR = {
    "pair:actor/ppo_kl": Claim(
        "old_logprob against logprob",
        "core_algos.py: ppo_kl is the mean of minus negative_approx_kl, which is log_prob less old_log_prob",
    )
}

#: Before there were names, a loss handed its metrics back in this order.
_IN_ORDER = re.compile(r"return pg_loss, (pg_clipfrac, ppo_kl(?:, pg_clipfrac_lower)?)\b")

#: The loss that makes weights and rejections inside, of the sampler's log-probs and the current ones.
BYPASS = "bypass_mode"

CORRECTION = "verl.trainer.config.algorithm.RolloutCorrectionConfig"

#: Settings of its section; the names are the framework's own.
BYPASSES: Mapping[str, Settings] = {
    "clipped": {"loss_type": "ppo_clip", "rollout_is": None},
    "reinforce, token weights": {"loss_type": "reinforce", "rollout_is": "token"},
    "reinforce, rejection": {
        "loss_type": "reinforce",
        "rollout_is": None,
        "rollout_rs": "seq_mean_k1",
        "rollout_rs_threshold": "0.5_2.0",
    },
}

_BYPASS = "compute_policy_loss_bypass_mode, docstring: the ratio is of the current to the rollout policy; "

#: What the docstring says of each; the rows that a rejection keeps are its own.
_BYPASS_CLAIMS: Mapping[str, Mapping[str, Claim]] = {
    "clipped": claims(_BYPASS + "ppo_clip is the clipped objective, without weights", algorithm="dual clip"),
    "reinforce, token weights": claims(
        _BYPASS + "reinforce weighs the log-prob by the truncated ratio, at most 2 by default",
        algorithm="reinforce",
        corrected_at_most="2.0",
    ),
}

_WEIGHED = (
    "compute_rollout_correction_weights, docstring: a single threshold clamps the weights of training to rollout "
    "policy; core_algos.py, comment in each loss: rollout correction weights are applied where provided, those of "
    "geo_mean as their geometric mean over the sequence"
)

_PLAIN = "core_algos.compute_policy_loss, docstring: the clipped policy objective of PPO, averaged over the mask"

#: How a token's loss becomes one number; the second family has all that changes a loss, and the metrics.
FAMILIES = ("default", "seq-mean-token-mean")

#: Neutral name of a number -> verl's, in the section of the actor.
SECTION: Mapping[str, str] = {
    "clip_low": "clip_ratio_low",
    "clip_high": "clip_ratio_high",
    "ceiling": "clip_ratio_c",
    "temperature": "tau_pos",
    "negative_temperature": "tau_neg",
}

_RANGE: Settings = {"clip_low": 0.2, "clip_high": 0.3, "ceiling": 4.0}

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
    for name, function in registry.items():
        if name == BYPASS and _holds_correction(target):
            for family in BYPASSES:
                yield _guarded(path_of(function), partial(_bypass, target, function, family))
        for family in FAMILIES if name != BYPASS else ():
            yield _guarded(path_of(function), partial(_registered, target, name, function, family))
    if not registry:
        yield _guarded(PLAIN, partial(_plain, target))


def _guarded(path: str, make: Callable[[], Boundary]) -> Boundary | Unbound:
    try:
        return make()
    except Unbindable as why:
        return Unbound(path, "policy-loss", str(why))


def actor(target: Target, name: str, knobs: Mapping[str, Any], **policy: Any) -> Any:  # noqa: ANN401 - the target's class
    """The actor's configuration for a loss; ``knobs`` in the framework's own words."""
    if not target.has("verl.workers.config.FSDPActorConfig"):
        more = {f"policy_loss.{word}": value for word, value in policy.items()}
        return _section(target.root, name, (*knobs.items(), *more.items()))
    section = {}
    if target.has("verl.workers.config.PolicyLossConfig"):
        section = {"policy_loss": target.call("verl.workers.config.PolicyLossConfig", loss_mode=name, **policy)}
    path = "verl.workers.config.FSDPActorConfig"
    return target.call(path, rollout_n=4, ppo_micro_batch_size_per_gpu=4, **section, **knobs)


@cache
def _section(root: Path, name: str, knobs: tuple[tuple[str, Any], ...]) -> Any:  # noqa: ANN401 - an OmegaConf section
    """The actor's section of the configuration that ships, before verl had a class for it."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - a package of the target, absent elsewhere

    folder = root / "verl" / "trainer" / "config"
    whole = folder / "_generated_ppo_trainer.yaml"
    config = OmegaConf.load(whole if whole.is_file() else folder / "ppo_trainer.yaml").actor_rollout_ref.actor
    OmegaConf.update(config, "policy_loss.loss_mode", name, force_add=True)
    for key, value in knobs:
        OmegaConf.update(config, key, value, force_add=True)
    return config


def _registered(target: Target, name: str, function: Callable[..., Any], family: str) -> Boundary:
    path = path_of(function)
    target.source(function)
    bound(function, dict.fromkeys((*ROLES, "aggregation", "config")))
    if family == "default":
        return _default(target, name, function, path)
    logged = metrics_of(function)
    own = NUMBERS.get(name, _RANGE)
    weighs = takes(function, "rollout_weight") and accepts(target, WEIGHTS["token"])
    counts, weights = _counts(target, name), remembered(target)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {role: make(batch) for role, make in ROLES.items()}
        policy = {word: settings[n] for n, word in _POLICY.get(name, {}).items()}
        config = actor(target, name, {word: settings[n] for n, word in SECTION.items() if n in settings}, **policy)
        if counts:
            config.global_batch_info.update({GIVEN[n]: settings[n] for n in counts})
        given |= {"aggregation": "seq-mean-token-mean", "config": config}
        if weighs:
            given["rollout_weight"] = weights(batch)
        return answered(target.call(path, **bound(function, given)), logged)

    said = {**CLAIMS.get(name, {}), **_PAIR, **_algorithm(target, name)}
    if weighs:
        said |= claims(_WEIGHED, corrected_at_most="2.0", corrected_by="row" if name == "geo_mean" else "token")
    outputs = {n: _output(name, n) for n in logged}
    reach = f"actor.policy_loss.loss_mode={name}" + (" algorithm.rollout_correction.rollout_is=token" if weighs else "")
    boundary = _boundary(
        f"{BOTH} -> {path}" if weighs else path, call, said, {family: {**own, **counts}}, reach, outputs
    )
    return replace(boundary, reads=boundary.reads | {"rollout_logprob"}) if weighs else boundary


def _default(target: Target, name: str, function: Callable[..., Any], path: str) -> Boundary:
    """The loss as it is configured when it ships, without metrics."""
    policy = {word: NUMBERS[name][n] for n, word in _POLICY.get(name, {}).items() if name == "dro"}

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {role: make(batch) for role, make in ROLES.items()}
        knobs = {n.removeprefix("actor."): v for n, v in settings.items()}
        given |= {"aggregation": "token-mean", "config": actor(target, name, knobs, **policy)}
        return answered(target.call(path, **bound(function, given)), ())

    said = {**CLAIMS.get(name, {}), **KNOBS.get(name, {})}
    return _boundary(path, call, said, {"default": {}}, f"actor.policy_loss.loss_mode={name}", {})


def _output(name: str, metric: str) -> Output:
    """What a metric of a loss says it is; a range that is not of each token's ratio has a clipped share of its own."""
    other = _OTHER.get(name, {}).get(metric)
    own = metric == "actor/pg_clipfrac" and name not in _TOKEN_RATIO
    return other or (replace(LOGGED[metric], quantity="clip_fraction.own") if own else LOGGED[metric])


def _algorithm(target: Target, name: str) -> dict[str, Claim]:
    """The algorithm of a loss and how it is aggregated, where its docstring says so."""
    if name not in ALGORITHMS:
        return {}
    said = {"algorithm": ALGORITHMS[name], **aggregation(target, "seq-mean-token-mean")}
    if name == "geo_mean":
        said |= claims(
            "compute_policy_loss_geo_mean: the mean over the batch of one loss for each sequence", rows="all"
        )
    return said


def _counts(target: Target, name: str) -> Settings:
    """Denominators of the whole mini-batch, where the configuration of this release holds them."""
    section = "verl.workers.config.FSDPActorConfig"
    if name == "geo_mean" or not target.has(section):
        return {}
    return _COUNTED if "global_batch_info" in {f.name for f in fields(target.find(section))} else {}


def _holds_correction(target: Target) -> bool:
    """Whether the policy loss's section has a place for the correction, as bypass mode reads it."""
    section = "verl.workers.config.PolicyLossConfig"
    if not target.has(section) or target.fails(section):
        return False  # the losses themselves tell that it fails
    return "rollout_correction" in {f.name for f in fields(target.find(section))}


def _bypass(target: Target, function: Callable[..., Any], family: str) -> Boundary:
    path = path_of(function)
    target.source(function)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {role: make(batch) for role, make in ROLES.items()}
        section = target.call(CORRECTION, bypass_mode=True, **BYPASSES[family])
        config = actor(target, BYPASS, {word: settings[n] for n, word in SECTION.items() if n in settings})
        config = replace(config, policy_loss=replace(config.policy_loss, rollout_correction=section))
        given |= {"aggregation": "seq-mean-token-mean", "config": config, "old_logprob": batch.rollout_logprob}
        return answered(target.call(path, **bound(function, given)), ())

    said = {**_RATIO, **aggregation(target, "seq-mean-token-mean"), **_BYPASS_CLAIMS.get(family, {})}
    numbers = _RANGE if family == "clipped" else {}
    reach = "algorithm.rollout_correction.bypass_mode=True"
    boundary = _boundary(path, call, said, {family: numbers}, reach, {})
    return replace(boundary, reads=frozenset({"logprob", "rollout_logprob", "advantage", "mask"}))


def _plain(target: Target) -> Boundary:
    function = target.find(PLAIN)
    logged = metrics_of(function)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {role: make(batch) for role, make in ROLES.items()}
        given["mask"] = batch.mask.float()
        given |= {"clip": 0.2, "clip_low": settings["clip_low"], "clip_high": settings["clip_high"]}
        given["clip_c"] = settings["ceiling"]
        given["aggregation"] = "token-mean"
        return answered(target.call(PLAIN, **bound(function, given)), logged)

    dual = "clip_ratio_c" in inspect.signature(function).parameters
    family: Settings = {"clip_low": 0.2, "clip_high": 0.2, "ceiling": 3.0}
    said = {**_RATIO, **_PAIR, **claims(_PLAIN, algorithm="dual clip" if dual else "ppo", aggregation="token-mean")}
    return _boundary(PLAIN, call, said, {"default": family}, "every PPO or GRPO run", {n: LOGGED[n] for n in logged})


def _boundary(  # noqa: PLR0913 - a loss has these parts
    path: str,
    call: Callable[[Batch, Settings], Mapping[str, Tensor]],
    said: Mapping[str, Claim],
    settings: Mapping[str, Settings],
    reach: str,
    logged: Mapping[str, Output],
) -> Boundary:
    return Boundary(
        path=path,
        stage="policy-loss",
        call=call,
        reads=frozenset({"logprob", "old_logprob", "advantage", "mask"}),
        outputs={"loss": Output("", "", "loss"), **logged},
        settings=settings,
        claims=said,
        reach=reach,
    )


@cache
def metrics_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Logged names that a loss hands back, by its own source."""
    try:
        source = inspect.getsource(inspect.unwrap(function))
    except OSError:
        return ()
    in_order = _IN_ORDER.search(source)
    if in_order:
        return tuple(f"actor/{name}" for name in in_order[1].split(", "))
    return tuple(name for name in LOGGED if f'"{name}":' in source)


def answered(result: Any, logged: tuple[str, ...]) -> Mapping[str, Tensor]:  # noqa: ANN401 - the target's answer
    """The loss and the metrics ``logged``, from a mapping or from what stands behind the loss."""
    loss, *rest = result if isinstance(result, tuple) else (result,)
    found = rest[0] if rest and isinstance(rest[0], Mapping) else dict(zip(logged, rest, strict=False))
    return {"loss": loss} | {name: torch.as_tensor(found[name]).detach().float() for name in logged}
