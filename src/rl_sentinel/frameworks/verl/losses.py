"""verl's policy losses, value loss and aggregation."""

import inspect
from collections.abc import Callable, Iterator, Mapping
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

VALUE = f"{MODULE}.compute_value_loss"
AGGREGATE = f"{MODULE}.agg_loss"
PLAIN = f"{MODULE}.compute_policy_loss"

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")

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

#: Denominators as the trainer gives them, counted over the mini-batch and all ranks.
GLOBAL: Settings = {"batch_num_tokens": 64, "global_batch_size": 16}

#: Entered by other routes, or drawn at random, so that two calls are no relation.
_APART = ("bypass_mode",)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per registered loss, then the value loss and the aggregation."""
    try:
        module = target.module(MODULE)
    except Unbindable as why:
        yield Unbound(PLAIN, "policy-loss", str(why))
        return
    registry = registered(target, LOSSES) or {}
    if registry:
        yield from missing(target, LOSSES)
    for name, function in registry.items():
        if name not in _APART:
            yield _guarded(path_of(function), partial(_registered, target, name, function))
    if not registry:
        yield _guarded(PLAIN, partial(_plain, target))
    yield _guarded(VALUE, partial(_value, target))
    if hasattr(module, "agg_loss"):
        yield from _aggregations(target)


def _guarded(path: str, make: Callable[[], Boundary]) -> Boundary | Unbound:
    try:
        return make()
    except Unbindable as why:
        return Unbound(path, "policy-loss", str(why))


def _actor(target: Target, name: str) -> Any:  # noqa: ANN401 - the target's class
    if not target.has("verl.workers.config.FSDPActorConfig"):
        return _section(target.root, name)
    policy = {}
    if target.has("verl.workers.config.PolicyLossConfig"):
        policy = {"policy_loss": target.call("verl.workers.config.PolicyLossConfig", loss_mode=name)}
    return target.call("verl.workers.config.FSDPActorConfig", rollout_n=4, ppo_micro_batch_size_per_gpu=4, **policy)


@cache
def _section(root: Path, name: str) -> Any:  # noqa: ANN401 - an OmegaConf section
    """The actor's section of the configuration that ships, before verl had a class for it."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - a package of the target, absent elsewhere

    config = OmegaConf.load(root / "verl" / "trainer" / "config" / "ppo_trainer.yaml").actor_rollout_ref.actor
    OmegaConf.update(config, "policy_loss.loss_mode", name, force_add=True)
    return config


def _registered(target: Target, name: str, function: Callable[..., Any]) -> Boundary:
    path = path_of(function)
    target.source(function)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {role: make(batch) for role, make in ROLES.items()}
        given |= {"aggregation": settings.get("aggregation", "token-mean"), "config": _actor(target, name)}
        return _loss(target.call(path, **bound(function, given)))

    modes = {"default": "token-mean", "seq-mean-token-mean": "seq-mean-token-mean"}
    return _boundary(
        path,
        call,
        CLAIMS.get(name, {}),
        {k: {"aggregation": v} for k, v in modes.items()},
        f"actor.policy_loss.loss_mode={name}",
    )


def _plain(target: Target) -> Boundary:
    function = target.find(PLAIN)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {role: make(batch) for role, make in ROLES.items()}
        given["mask"] = batch.mask.float()
        given |= {"clip": 0.2, "clip_low": 0.2, "clip_high": 0.2, "clip_c": 3.0}
        given["aggregation"] = settings.get("aggregation", "token-mean")
        return _loss(target.call(PLAIN, **bound(function, given)))

    return _boundary(PLAIN, call, _RATIO, {"default": {}}, "every PPO or GRPO run")


def _boundary(
    path: str,
    call: Callable[[Batch, Settings], Mapping[str, Tensor]],
    said: Mapping[str, Claim],
    settings: Mapping[str, Settings],
    reach: str,
) -> Boundary:
    return Boundary(
        path=path,
        stage="policy-loss",
        call=call,
        reads=frozenset({"logprob", "old_logprob", "advantage", "mask"}),
        outputs={"loss": Output("", "", "loss")},
        settings=settings,
        claims=said,
        reach=reach,
    )


def _loss(result: Any) -> Mapping[str, Tensor]:  # noqa: ANN401 - the target's answer
    loss = result[0] if isinstance(result, tuple) else result
    return {"loss": loss}


def _value(target: Target) -> Boundary:
    function = target.find(VALUE)

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {role: make(batch) for role, make in ROLES.items()}
        given |= {
            "values": batch.old_value,
            "value_prediction": batch.value,
            "value_clip": settings["value_clip"],
        }
        return _loss(target.call(VALUE, **bound(function, given)))

    return Boundary(
        path=VALUE,
        stage="value-loss",
        call=call,
        reads=frozenset({"value", "old_value", "returns", "mask"}),
        outputs={"loss": Output("", "", "loss")},
        settings={"default": {"value_clip": 0.5}},
        reach="algorithm.adv_estimator=gae",
    )


def _aggregations(target: Target) -> Iterator[Boundary | Unbound]:
    function = target.find(AGGREGATE)
    source = inspect.getsource(function)
    fixed = "_norm" if "loss_scale_factor" in inspect.signature(function).parameters else ""
    for mode in MODES:
        if f'"{mode}"' not in source:
            continue

        def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
            mask = batch.mask.to(torch.int64)
            given = {k: v for k, v in settings.items() if k != "mode"}
            return {"loss": target.call(AGGREGATE, batch.advantage, mask, settings["mode"], **given)}

        width = mode.endswith("-norm")
        cite = f"core_algos.agg_loss: the horizon of the mask{fixed and ', where no scale factor is given'}"
        yield Boundary(
            path=AGGREGATE,
            stage="aggregate",
            call=call,
            reads=frozenset({"advantage", "mask"}),
            outputs={"loss": Output("", "", "loss")},
            settings={mode: {"mode": mode}} | ({f"{mode}, global": {"mode": mode, **GLOBAL}} if fixed else {}),
            claims=claims(cite, normaliser="width") if width else {},
            reach=f"actor.loss_agg_mode={mode}",
        )
