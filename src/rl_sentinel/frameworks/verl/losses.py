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
from rl_sentinel.frameworks.binding import bound
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.advantages import path_of
from rl_sentinel.frameworks.verl.columns import ROLES, claims
from rl_sentinel.frameworks.verl.registries import LOSSES, MODULE, missing, registered

PLAIN = f"{MODULE}.compute_policy_loss"

_RATIO = claims("core_algos.py, the loss's docstring: ratio of current to old policy", ratio="yes")

_CHOICE = "core_algos.py, docstring: tokens are chosen by the size of their covariance"

#: By registered name; a loss that is not here is judged by the laws that need no claim.
CLAIMS: Mapping[str, Mapping[str, Claim]] = {
    "vanilla": _RATIO,
    "gspo": _RATIO,
    "sapo": claims("core_algos.py, docstring", on_policy_gradient="other"),
    "clip_cov": claims(_CHOICE, on_policy_gradient="other", row_order="yes"),
    "kl_cov": claims(_CHOICE, on_policy_gradient="other", row_order="yes"),
}

#: Settings that the documentation names for a loss, with two values that must not give the same.
KNOBS: Mapping[str, Mapping[str, Claim]] = {
    "vanilla": {"knob:actor.clip_ratio": Claim("0.1|0.4", "docs/algo/ppo.md: actor.clip_ratio is the PPO clip range")},
}

#: Logged name -> what it says it is; all are means over the response mask.
LOGGED: Mapping[str, Output] = {
    "actor/pg_clipfrac": Output("", "", "clip_fraction", over="live"),
    "actor/ppo_kl": Output("", "nats", "kl.kl", over="live"),
    "actor/pg_clipfrac_lower": Output("", "", "clip_fraction_lower", over="live"),
}

#: A share of the tokens that were chosen, which is no mean.
_CHOSEN = {"clip_cov": {"actor/pg_clipfrac": Output("", "", "chosen")}}

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

#: What a loss cannot do without, in the section of the policy loss.
POLICY: Mapping[str, Mapping[str, Any]] = {"dro": {"dro_beta": 0.5}}

#: How a token's loss becomes one number, and the clip range; metrics, which the first changes nowhere, in one of them.
FAMILIES: Mapping[str, Settings] = {
    "default": {"aggregation": "token-mean"},
    "seq-mean-token-mean": {
        "aggregation": "seq-mean-token-mean",
        "actor.clip_ratio_low": 0.2,
        "actor.clip_ratio_high": 0.3,
    },
}

#: The same where the range is of each token's ratio, under the names by which a clipped fraction is recomputed.
OF_TOKENS: Mapping[str, Settings] = {
    **FAMILIES,
    "seq-mean-token-mean": {"aggregation": "seq-mean-token-mean", "clip_low": 0.2, "clip_high": 0.3},
}

_TOKEN_RATIO = ("vanilla", "cispo")

_SECTION = {"clip_low": "clip_ratio_low", "clip_high": "clip_ratio_high"}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per registered loss and family of settings, or the one loss before the registry."""
    try:
        registry = registered(target, LOSSES) or {}
    except Unbindable as why:
        yield Unbound(PLAIN, "policy-loss", str(why))
        return
    if registry:
        yield from missing(target, LOSSES)
    for name, function in registry.items():
        if name == BYPASS and _holds_correction(target):
            yield _guarded(path_of(function), partial(_bypass, target, function))
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
        return _section(target.root, name, tuple(knobs.items()))
    more = {}
    if target.has("verl.workers.config.PolicyLossConfig"):
        more = {"policy_loss": target.call("verl.workers.config.PolicyLossConfig", loss_mode=name, **policy)}
    path = "verl.workers.config.FSDPActorConfig"
    return target.call(path, rollout_n=4, ppo_micro_batch_size_per_gpu=4, **more, **knobs)


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
    logged = () if family == "default" else metrics_of(function)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {role: make(batch) for role, make in ROLES.items()}
        knobs = {_SECTION.get(k, k.removeprefix("actor.")): v for k, v in settings.items() if k != "aggregation"}
        given |= {"aggregation": settings["aggregation"], "config": actor(target, name, knobs, **POLICY.get(name, {}))}
        return answered(target.call(path, **bound(function, given)), logged)

    documented = KNOBS.get(name, {}) if family == "default" else {}
    said = {**CLAIMS.get(name, {}), **documented}
    families = OF_TOKENS if name in _TOKEN_RATIO else FAMILIES
    outputs = {n: _CHOSEN.get(name, {}).get(n, LOGGED[n]) for n in logged}
    return _boundary(path, call, said, {family: families[family]}, f"actor.policy_loss.loss_mode={name}", outputs)


def _holds_correction(target: Target) -> bool:
    """Whether the policy loss's section has a place for the correction, as bypass mode reads it."""
    section = "verl.workers.config.PolicyLossConfig"
    return target.has(section) and "rollout_correction" in {f.name for f in fields(target.find(section))}


def _bypass(target: Target, function: Callable[..., Any]) -> Boundary:
    path = path_of(function)
    target.source(function)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {role: make(batch) for role, make in ROLES.items()}
        section = target.call(CORRECTION, bypass_mode=True, **settings)
        config = actor(target, BYPASS, {}, rollout_correction=section)
        given |= {"aggregation": "seq-mean-token-mean", "config": config, "old_logprob": batch.rollout_logprob}
        return answered(target.call(path, **bound(function, given)), ())

    boundary = _boundary(path, call, _RATIO, BYPASSES, "algorithm.rollout_correction.bypass_mode=True", {})
    return replace(boundary, reads=frozenset({"logprob", "rollout_logprob", "advantage", "mask"}))


def _plain(target: Target) -> Boundary:
    function = target.find(PLAIN)
    logged = metrics_of(function)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {role: make(batch) for role, make in ROLES.items()}
        given["mask"] = batch.mask.float()
        given |= {"clip": 0.2, "clip_low": settings["clip_low"], "clip_high": settings["clip_high"], "clip_c": 3.0}
        given["aggregation"] = "token-mean"
        return answered(target.call(PLAIN, **bound(function, given)), logged)

    family: Settings = {"clip_low": 0.2, "clip_high": 0.2}
    return _boundary(PLAIN, call, _RATIO, {"default": family}, "every PPO or GRPO run", {n: LOGGED[n] for n in logged})


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
