"""SkyRL's registered policy losses: for each, its claims, its numbers, and the meaning of its clip fraction."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rl_sentinel.core.boundary import Output, Population
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims

_RATIO = claims("ppo_utils.py, the loss: ratio of the current to the old policy", ratio=True)
_SAMPLER = claims("ppo_utils.py, the loss: ratio of the current policy to that of the rollout", ratio=True)
_OTHER = claims("ppo_utils.py, docstring", on_policy_gradient="other")
_CHOICE = claims(
    "ppo_utils.py, docstring: tokens are chosen by the size of their covariance",
    on_policy_gradient="other",
    row_order=True,
)

_CLIP: Settings = {"clip_low": 0.2, "clip_high": 0.3}
_CLIP_FIELDS: Mapping[str, str] = {"eps_clip_low": "clip_low", "eps_clip_high": "clip_high"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LossMode:
    """A registered loss.

    ``fields`` maps a field of the algorithm's section to the neutral name of its number. The algorithm is claimed only
    if these numbers are set. ``clipped`` is the quantity of ``clip_ratio``, or empty if the loss logs a constant.
    """

    claims: Claims
    algorithm: Claims = field(default_factory=Claims)
    numbers: Settings = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    clipped: str = ""


def _named(algorithm: str, words: str) -> Claims:
    return claims(f"ppo_utils.py, docstring of the loss: {words}", algorithm=algorithm)


#: Registered name -> its mode; a loss without an entry is judged only by laws that need no claim.
MODES: Mapping[str, LossMode] = {
    "regular": LossMode(
        claims=_RATIO,
        algorithm=claims(
            "config.mdx, algorithm.policy_loss_type: regular is PPO with ratios of tokens", algorithm="ppo"
        ),
        numbers=_CLIP,
        fields=_CLIP_FIELDS,
        clipped="clip_fraction",
    ),
    "dual_clip": LossMode(
        claims=_RATIO,
        algorithm=claims(
            "config.mdx, algorithm.policy_loss_type: dual_clip is that of arXiv 1912.09729", algorithm="dual clip"
        ),
        numbers={**_CLIP, "ceiling": 3.0},
        fields={**_CLIP_FIELDS, "clip_ratio_c": "ceiling"},
        clipped="clip_fraction",
    ),
    "gspo": LossMode(
        claims=claims(
            "ppo_utils.py, the loss: ratio of the current to the old policy, of the sequence",
            ratio=True,
            scope="sequence",
        ),
        algorithm=_named("gspo", "GSPO, arXiv 2507.18071"),
        numbers=_CLIP,
        fields=_CLIP_FIELDS,
        clipped="clip_fraction.own",
    ),
    "sapo": LossMode(
        claims=_OTHER,
        algorithm=_named("sapo", "SAPO, arXiv 2511.20347"),
        numbers={"temperature": 1.5, "negative_temperature": 2.0},
        fields={"sapo.tau_pos": "temperature", "sapo.tau_neg": "negative_temperature"},
    ),
    "cispo": LossMode(
        claims=_RATIO,
        algorithm=_named("cispo", "CISPO, arXiv 2506.13585"),
        numbers={"clip_low": 0.5, "clip_high": 2.0},
        fields={"cispo.cispo_eps_clip_low": "clip_low", "cispo.cispo_eps_clip_high": "clip_high"},
        clipped="clip_fraction",
    ),
    "rollout_is": LossMode(claims=_SAMPLER, clipped="clip_fraction.own"),
    "dppo": LossMode(claims=_SAMPLER, clipped="clip_fraction.own"),
    "importance_sampling": LossMode(claims=_RATIO),
    "clip_cov": LossMode(
        claims=_CHOICE,
        algorithm=_named("clip-cov", "Clip-Cov, after PRIME-RL/Entropy-Mechanism-of-RL"),
        numbers={**_CLIP, "share": 0.4, "cov_low": 0.01, "cov_high": 0.75},
        fields={
            **_CLIP_FIELDS,
            "clip_cov.clip_ratio": "share",
            "clip_cov.clip_cov_lb": "cov_low",
            "clip_cov.clip_cov_ub": "cov_high",
        },
        clipped="chosen",
    ),
    "kl_cov": LossMode(
        claims=_CHOICE,
        algorithm=_named("kl-cov", "KL-Cov, after PRIME-RL/Entropy-Mechanism-of-RL"),
        numbers={"share": 0.4, "penalty": 0.75},
        fields={"kl_cov.kl_cov_frac": "share", "kl_cov.ppo_kl_coef": "penalty"},
    ),
}


def mode_of(name: str) -> LossMode:
    """The mode of a registered loss, with no claims if it is not listed."""
    return MODES.get(name, LossMode(claims=Claims()))


def logged(name: str, function: Callable[..., Any]) -> dict[str, Output]:
    """The clip fraction that a loss returns, in a dict or, before 0.1, as a number; empty if its mode has none."""
    quantity = mode_of(name).clipped
    if not quantity:
        return {}
    result = Use("result")[1]
    at = result["clip_ratio"] if "clip_ratio" in _keys(function) else result
    over: Population = "" if quantity == "chosen" else "live"  # a whole number of tokens is drawn, so it is not a mean
    return {"clip_ratio": Output("", "", quantity, over=over, at=at)}


def _keys(function: Callable[..., Any]) -> set[str]:
    """String constants in the code of a loss, without its decorators; they include the keys of its result."""
    code = inspect.unwrap(function).__code__
    return {
        value
        for constant in code.co_consts
        for value in (constant if isinstance(constant, tuple) else (constant,))
        if isinstance(value, str)
    }
