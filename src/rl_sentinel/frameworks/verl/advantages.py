"""verl's advantage estimators: everything in its registry, called directly."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Claim, Output, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.binding import bound, takes
from rl_sentinel.frameworks.target import Target
from rl_sentinel.frameworks.verl.columns import ROLES, algorithm, claims

MODULE = "verl.trainer.ppo.core_algos"

#: Estimators that every release has under these names, so that a failed import is told by name.
EVERYWHERE = ("compute_gae_advantage_return", "compute_grpo_outcome_advantage")

_COLUMNS = {
    "values": ("value",),
    "group": ("group",),
    "reward_baseline": ("reward_baseline",),
    "old_logprob": ("old_logprob",),
    "pi_squared": ("pi_squared",),
}

_DOC = "core_algos.py, the estimator's docstring"

#: What the estimators say of themselves, by the name that they are registered under.
CLAIMS: Mapping[str, Mapping[str, Claim]] = {
    "gae": claims(_DOC, scope="batch", credit="temporal", algorithm="gae"),
    "grpo": claims(_DOC, scope="group", credit="outcome", baseline="relative", algorithm="grpo"),
    "grpo_vectorized": claims(_DOC, scope="group", credit="outcome", baseline="relative", algorithm="grpo"),
    "grpo_passk": claims(_DOC, scope="group", credit="outcome", order_statistic="yes", algorithm="pass@k"),
    "reinforce_plus_plus_baseline": claims(_DOC, scope="batch", credit="outcome", algorithm="reinforce++ baseline"),
    "rloo": claims(_DOC, scope="group", credit="outcome", baseline="relative", algorithm="rloo"),
    "rloo_vectorized": claims(_DOC, scope="group", credit="outcome", baseline="relative", algorithm="rloo"),
    "opo": claims(_DOC, scope="group", credit="outcome", baseline="relative", algorithm="opo"),
    "gpg": claims(_DOC, scope="batch", credit="outcome", algorithm="gpg"),
    "gdpo": claims(_DOC, scope="batch", credit="outcome", algorithm="gdpo"),
    "remax": claims(_DOC, scope="sequence", credit="temporal", algorithm="remax"),
    "reinforce_plus_plus": claims(_DOC, scope="batch", credit="temporal", algorithm="reinforce++"),
    "optimal_token_baseline": claims(_DOC, scope="group", algorithm="optimal token baseline"),
    "tir_optimal_token_baseline": claims(_DOC, scope="group", algorithm="optimal token baseline"),
}

#: Estimators that compute one algorithm.
_TWINS = {"grpo_vectorized": "grpo", "rloo_vectorized": "rloo"}

DISCOUNTED: Settings = {"gamma": 0.9, "lam": 0.95}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """One boundary per estimator of the registry, or of the module where there is no registry."""
    try:
        found = estimators(target)
    except Unbindable as why:
        for name in EVERYWHERE:
            yield Unbound(f"{MODULE}.{name}", "advantage", str(why))
        return
    by_name = {name: path_of(function) for name, function in found.items()}
    for name, function in found.items():
        try:
            target.source(function)
            yield _boundary(target, name, function, by_name)
        except Unbindable as why:
            yield Unbound(path_of(function), "advantage", str(why))


def estimators(target: Target) -> dict[str, Callable[..., Any]]:
    """Registered name to function; before there was a registry, the module's functions by name."""
    module = target.module(MODULE)
    registry = getattr(module, "ADV_ESTIMATOR_REGISTRY", None)
    if registry is not None:
        return {str(getattr(n, "value", n)): f for n, f in registry.items()}
    named = inspect.getmembers(module, inspect.isfunction)
    return {
        n.removeprefix("compute_").removesuffix("_outcome_advantage").removesuffix("_advantage_return"): f
        for n, f in named
        if n.startswith("compute_") and n.endswith(("_outcome_advantage", "_advantage_return"))
    }


def path_of(function: Callable[..., Any]) -> str:
    """The dotted path of a function."""
    return f"{function.__module__}.{function.__qualname__}"


def _boundary(target: Target, name: str, function: Callable[..., Any], by_name: Mapping[str, str]) -> Boundary:
    path = path_of(function)
    roles = {r for r in _COLUMNS if takes(function, r)}
    said = CLAIMS.get(name, {})
    temporal = "credit" not in said or said["credit"].value == "temporal"
    reads = {"reward", "mask", "length"} | ({"token_reward"} if temporal else set())
    reads |= {c for r in roles for c in _COLUMNS[r]}

    def call(batch: Batch, settings: Settings) -> Mapping[str, Tensor]:
        given = {role: make(batch) for role, make in ROLES.items() if takes(function, role)}
        knobs = dict(settings)
        if takes(function, "config"):
            given["config"] = algorithm(target, {"gamma": 1.0, "lam": 1.0} | knobs)
        given |= {"gamma": knobs.get("gamma", 1.0), "lambda": knobs.get("lam", 1.0)}
        if "norm_adv_by_std_in_grpo" in knobs:
            given["standardise"] = knobs["norm_adv_by_std_in_grpo"]
        result = target.call(path, **bound(function, given))
        return outputs_of(result)

    bound(function, dict.fromkeys((*ROLES, "config", "gamma", "lambda")))
    return Boundary(
        path=path,
        stage="advantage",
        call=call,
        reads=frozenset(reads),
        outputs={
            "advantage": Output("B T", "reward", "advantage"),
            "returns": Output("B T", "reward", "returns"),
        },
        settings=_settings(function, name),
        claims=said,
        twins=tuple(by_name[t] for t in (_TWINS.get(name, ""),) if t in by_name),
        reach=f"algorithm.adv_estimator={name}",
    )


def _settings(function: Callable[..., Any], name: str) -> Mapping[str, Settings]:
    families: dict[str, Settings] = {"default": {}}
    if takes(function, "standardise") or name == "grpo_passk":
        families["no-std"] = {"norm_adv_by_std_in_grpo": False}
    if name in ("gae", "reinforce_plus_plus"):
        families["discounted"] = DISCOUNTED
    return families


def outputs_of(result: object) -> Mapping[str, Tensor]:
    """Advantages and returns of an estimator's answer."""
    if not isinstance(result, tuple) or len(result) != 2:
        message = f"estimator answers {type(result).__name__}, expected (advantages, returns)"
        raise TypeError(message)
    advantage, returns = result
    if not isinstance(advantage, Tensor) or not isinstance(returns, Tensor):
        message = f"estimator answers ({type(advantage).__name__}, {type(returns).__name__}), expected two tensors"
        raise TypeError(message)
    return {
        "advantage": advantage.to(torch.promote_types(advantage.dtype, torch.float32)),
        "returns": returns,
    }
