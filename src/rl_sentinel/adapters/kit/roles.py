"""The table of parameter names: which role a parameter has, whatever a framework or a user calls it."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from rl_sentinel.core.codec import Codec


@dataclass(frozen=True, slots=True)
class Role:
    """What a parameter is: the names in use for it, and the column of the batch that it is by default, if it is one."""

    names: tuple[str, ...]
    column: str = ""


#: Role -> its names. A name has one role in the whole package.
ROLES: Mapping[str, Role] = {
    "token_rewards": Role(("token_level_rewards", "token_rewards", "token_level_scores")),
    "reward": Role(("reward", "rewards", "score", "scores", "outcome", "outcomes"), "reward"),
    "mask": Role(("response_mask", "eos_mask", "loss_mask", "mask", "loss_masks", "action_mask"), "mask"),
    "group": Role(("index", "uid", "uids", "group", "groups", "group_id", "group_ids"), "group"),
    "values": Role(("values", "value"), "value"),
    "value_prediction": Role(("vpreds", "value_preds"), "value"),
    "old_value": Role(("old_values", "old_value"), "old_value"),
    "returns": Role(("returns",), "returns"),
    "advantage": Role(("advantages", "full_advantages", "advantage"), "advantage"),
    "logprob": Role(("log_prob", "log_probs", "logprobs", "logprob"), "logprob"),
    "old_logprob": Role(("old_log_prob", "old_log_probs", "old_logprobs", "old_logprob"), "old_logprob"),
    "ref_logprob": Role(("ref_logprob", "ref_log_prob", "ref_log_probs", "ref_logprobs"), "ref_logprob"),
    "rollout_logprob": Role(
        ("rollout_log_prob", "rollout_log_probs", "rollout_logprobs", "rollout_logprob"), "rollout_logprob"
    ),
    "rollout_weight": Role(("rollout_is_weights",)),
    "pi_squared": Role(("sum_pi_squared", "pi_squared"), "pi_squared"),
    "per_token": Role(
        ("loss_mat", "token_loss", "token_losses", "per_token_loss", "per_token_losses", "losses"), "advantage"
    ),
    "reward_baseline": Role(("reward_baselines", "reward_baseline"), "reward_baseline"),
    "gamma": Role(("gamma", "discount")),
    "lambda": Role(("lam", "lambd", "gae_lambda", "lambda_")),
    "config": Role(("config", "cfg")),
    "standardise": Role(("norm_adv_by_std_in_grpo", "grpo_norm_by_std")),
    "aggregation": Role(("loss_agg_mode",)),
    "clip": Role(("cliprange", "clip_ratio", "clip_range", "clip_eps", "clip_epsilon", "eps_clip")),
    "clip_low": Role(("cliprange_low", "clip_ratio_low", "clip_low", "eps_clip_low", "epsilon_low")),
    "clip_high": Role(("cliprange_high", "clip_ratio_high", "clip_high", "eps_clip_high", "epsilon_high")),
    "clip_c": Role(("clip_ratio_c", "clip_c", "ceiling")),
    "value_clip": Role(("cliprange_value", "value_clip", "clip_range_value")),
    "temperature": Role(("temperature", "tau_pos")),
    "negative_temperature": Role(("negative_temperature", "tau_neg")),
    "epsilon": Role(("epsilon", "eps")),
}

_ROLE = {name: role for role, about in ROLES.items() for name in about.names}


def role_of(name: str) -> str:
    """The role of a parameter of this name; empty where it has none."""
    return _ROLE.get(name, "")


def roles_of(names: Iterable[str]) -> dict[str, str]:
    """The roles of parameters that stand together, without those that have none.

    Values beside predicted ones are those of the old policy.

    Example:
        >>> from rl_sentinel.adapters.kit.roles import roles_of
        >>> roles_of(["vpreds", "values", "colour"])
        {'vpreds': 'value_prediction', 'values': 'old_value'}
    """
    roles = {name: _ROLE[name] for name in names if name in _ROLE}
    if "value_prediction" not in roles.values():
        return roles
    return {name: "old_value" if role == "values" else role for name, role in roles.items()}


def similar_names(name: str) -> list[str]:
    """The three known names that are most like this one."""
    return get_close_matches(name, _ROLE, n=3, cutoff=0.0)


def by_role(function: Callable[..., Any], codecs: Mapping[str, Codec]) -> dict[str, Codec]:
    """An argument for each parameter whose role has a codec; the others keep their defaults."""
    return {name: codecs[_ROLE[name]] for name in parameters_of(function) if _ROLE.get(name) in codecs}


@cache
def takes(function: Callable[..., Any], role: str) -> bool:
    """Whether a parameter of the function has this role."""
    return any(_ROLE.get(name) == role for name in parameters_of(function))


@cache
def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, or of the one that it wraps."""
    return inspect.signature(inspect.unwrap(function)).parameters
