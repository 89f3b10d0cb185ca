"""Outcome estimators and policy losses of :mod:`rl_sentinel.signal`, in the registries of SkyRL.

Import this module where the trainer starts, and name the estimator or the loss::

    import rl_sentinel.remedies.skyrl   # in the script that calls SkyRL's entry point
    trainer.algorithm.advantage_estimator=sentinel_grpo
    trainer.algorithm.policy_loss_type=sentinel_dual_clip

A response without a trained token then changes no advantage, and a group of equal rewards gets exactly 0. A loss
ignores values off the mask. SkyRL divides advantages by the denominator of its ``loss_reduction`` beforehand, so the
losses here are sums. SkyRL's off-policy correction is applied. Fully asynchronous training rejects losses of
recomputed log-probs by a list of names, to which this module adds its losses.
"""

import sys
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any

import torch
from skyrl.backends.skyrl_train.utils import ppo_utils
from skyrl.backends.skyrl_train.utils.off_policy_correction_utils import compute_off_policy_correction
from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry, PolicyLossRegistry
from torch import Tensor

from rl_sentinel.remedies.framework_inputs import Responses, Update, per_token, responses
from rl_sentinel.signal.advantage import grpo, maxrl, rloo
from rl_sentinel.signal.loss import cispo, dual_clip, gspo, importance_sampling, ppo, sapo
from rl_sentinel.signal.reduce import Aggregation

#: Added to a deviation, in reward units; SkyRL adds the same number.
EPSILON = 1e-6

#: A sum, because SkyRL has already divided the advantages by the denominator.
SUM = Aggregation("token-sum", 1.0)

#: Name after ``sentinel_`` -> the estimator.
ESTIMATORS: dict[str, Callable[[Responses], Tensor]] = {
    "grpo": lambda x: grpo.advantages(x.reward, **x.arguments, standardize=x.by_deviation, epsilon=EPSILON),
    "rloo": lambda x: rloo.advantages(x.reward, **x.arguments),
    "maxrl": lambda x: maxrl.advantages(x.reward, **x.arguments),
}


def clips(config: Any) -> dict[str, float]:  # noqa: ANN401 - SkyRL's configuration
    """The lower and the upper clip of a configuration, as distances from a ratio of 1."""
    return {"clip_low": config.eps_clip_low, "clip_high": config.eps_clip_high}


def _cispo(x: Update) -> Tensor:
    chosen = x.config.cispo
    return x.loss(cispo.loss, clip_low=chosen.cispo_eps_clip_low, clip_high=chosen.cispo_eps_clip_high)


def _sapo(x: Update) -> Tensor:
    chosen = x.config.sapo
    return x.loss(sapo.loss, temperature=chosen.tau_pos, negative_temperature=chosen.tau_neg)


#: Name after ``sentinel_`` -> the loss.
LOSSES: dict[str, Callable[[Update], Tensor]] = {
    "regular": lambda x: x.loss(ppo.loss, **clips(x.config)),
    "dual_clip": lambda x: x.loss(dual_clip.loss, **clips(x.config), ceiling=x.config.clip_ratio_c),
    "gspo": lambda x: x.loss(gspo.loss, **clips(x.config)),
    "cispo": _cispo,
    "sapo": _sapo,
    "importance_sampling": lambda x: x.loss(importance_sampling.loss),
}


def _advantages(
    estimator: Callable[[Responses], Tensor],
    *,
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: object,
    grpo_norm_by_std: bool = True,
    **_more: object,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns ``[B, T]`` in the form of SkyRL; the outcome is the sum of a row's rewards."""
    mask = response_mask.bool()
    inputs = responses(token_level_rewards, mask=mask, index=index, by_deviation=grpo_norm_by_std)
    return per_token(estimator(inputs), mask=mask)


def _loss(  # noqa: PLR0913 - SkyRL's signature
    function: Callable[[Update], Tensor],
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    config: Any,  # noqa: ANN401 - SkyRL's configuration
    loss_mask: Tensor | None = None,
    rollout_logprobs: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss and the metrics that SkyRL logs; its off-policy correction weights advantages and may mask tokens."""
    mask = torch.ones_like(log_probs, dtype=torch.bool) if loss_mask is None else loss_mask.bool()
    metrics: dict[str, float] = {}
    if rollout_logprobs is not None:
        columns = old_log_probs, rollout_logprobs, mask.to(log_probs.dtype)
        weight, metrics, corrected_mask = compute_off_policy_correction(*columns, config.off_policy_correction)
        advantages, mask = advantages if weight is None else advantages * weight, corrected_mask.bool()
    update = Update(log_probs, old_log_probs, advantages, mask, SUM, config)
    return function(update), {"clip_ratio": update.clipped(**clips(config)), **metrics}


for _registry, _ours in (
    (AdvantageEstimatorRegistry, {n: partial(_advantages, f) for n, f in ESTIMATORS.items()}),
    (PolicyLossRegistry, {n: partial(_loss, f) for n, f in LOSSES.items()}),
):
    for _name, _function in _ours.items():
        if f"sentinel_{_name}" not in _registry.list_available():  # another process may have registered it
            _registry.register(f"sentinel_{_name}", _function)

#: Losses that compare with recomputed log-probs of the policy before the update, as all losses here do.
_Recomputing = StrEnum("_Recomputing", {_name.upper(): f"sentinel_{_name}" for _name in LOSSES})  # type: ignore[misc]  # its names are the table's

for _module in (ppo_utils, sys.modules.get("skyrl.train.fully_async_trainer")):
    if (_refused := getattr(_module, "LOSSES_WITH_OLD_LOGPROBS", None)) is not None:  # absent before 0.3
        vars(_module)["LOSSES_WITH_OLD_LOGPROBS"] = _refused | frozenset(_Recomputing)
