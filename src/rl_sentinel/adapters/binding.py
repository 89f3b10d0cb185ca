"""Arguments bound by role, through one table of parameter names; never by release number."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from rl_sentinel.core.errors import Unbindable

#: role -> parameter names in use for it.
NAMES: Mapping[str, tuple[str, ...]] = {
    "token_rewards": ("token_level_rewards", "rewards", "token_rewards"),
    "mask": ("response_mask", "eos_mask", "loss_mask", "mask", "loss_masks", "action_mask"),
    "group": ("index", "uid", "group", "group_ids"),
    "values": ("values", "value"),
    "gamma": ("gamma", "discount"),
    "lambda": ("lam", "lambd", "gae_lambda", "lambda_"),
    "config": ("config", "cfg"),
    "standardise": ("norm_adv_by_std_in_grpo", "grpo_norm_by_std"),
    "reward_baseline": ("reward_baselines", "reward_baseline"),
    "logprob": ("log_prob", "log_probs", "logprobs", "logprob"),
    "old_logprob": ("old_log_prob", "old_log_probs", "old_logprobs", "old_logprob"),
    "ref_logprob": ("ref_logprob", "ref_log_prob", "ref_log_probs", "ref_logprobs"),
    "rollout_logprob": ("rollout_log_prob", "rollout_log_probs", "rollout_logprobs"),
    "rollout_weight": ("rollout_is_weights",),
    "pi_squared": ("sum_pi_squared",),
    "advantage": ("advantages", "full_advantages", "advantage"),
    "returns": ("returns",),
    "value_prediction": ("vpreds", "value_preds"),
    "old_value": ("old_values", "old_value"),
    "per_token": ("loss_mat", "token_loss", "token_losses", "per_token_loss", "per_token_losses", "losses"),
    "aggregation": ("loss_agg_mode",),
    "clip": ("cliprange", "clip_ratio", "eps_clip"),
    "clip_low": ("cliprange_low", "clip_ratio_low"),
    "clip_high": ("cliprange_high", "clip_ratio_high", "eps_clip_high"),
    "clip_c": ("clip_ratio_c",),
    "value_clip": ("cliprange_value", "value_clip"),
}

_ROLE = {name: role for role, names in NAMES.items() for name in names}


def bound(
    function: Callable[..., Any], roles: Mapping[str, Any], *, extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Keyword arguments for ``function``: each parameter gets the value of its role.

    ``extra`` gives values by parameter name, for the few that have no role. A parameter with a
    default and no value keeps its default.

    Raises:
        Unbindable: if a parameter without a default has no value.
    """
    given: dict[str, Any] = {}
    named = extra or {}
    for name, parameter in _parameters(function).items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if name in named:
            given[name] = named[name]
        elif _ROLE.get(name) in roles:
            given[name] = roles[_ROLE[name]]
        elif parameter.default is parameter.empty:
            message = f"{getattr(function, '__qualname__', function)} wants {name!r}, for which no role is known"
            raise Unbindable(message)
    return given


@cache
def takes(function: Callable[..., Any], role: str) -> bool:
    """Whether a parameter of ``function`` has this role."""
    return any(_ROLE.get(n) == role for n in _parameters(function))


@cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(inspect.unwrap(function)).parameters
