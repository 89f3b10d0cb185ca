"""Outcome estimators and policy losses of :mod:`rl_sentinel.signal`, in the registries of verl.

verl computes advantages in one process of Ray and losses in others, and each must know the names. From 0.6 on, every
process that imports verl also imports the modules that an environment variable names::

    export VERL_USE_EXTERNAL_MODULES=rl_sentinel.remedies.verl
    algorithm.adv_estimator=sentinel_grpo
    actor_rollout_ref.actor.policy_loss.loss_mode=sentinel_vanilla

For a cluster that runs already, set it in ``ray_kwargs.ray_init.runtime_env.env_vars``. Before 0.6, import this
module in your task runner, and by ``actor_rollout_ref.model.external_lib`` in the workers.

A response without a trained token (rejected, truncated, padding) then changes no advantage. The only response of a
prompt gets an advantage of 0; some of verl's estimators give it its raw reward. A loss reads nothing off the mask, and
refuses NaN and infinity on it.

If an agent loop returns several outputs per session, the trainer of verl 0.9 (``trainer.use_v1``) compares only the
last outputs, and only under the name ``grpo``; under any other name, each output counts. Use ``grpo`` there.
"""

from collections.abc import Callable
from functools import partial
from math import nan
from typing import Any

from torch import Tensor
from verl.trainer.ppo import core_algos

from rl_sentinel.remedies.framework_inputs import Responses, Update, aggregation_of, per_token, responses
from rl_sentinel.signal.advantage import gpg, grpo, opo, passk, reinforce_plus_plus_baseline, rloo
from rl_sentinel.signal.loss import cispo, dro, dual_clip, gspo, sapo

#: Added to a deviation, in reward units; verl adds the same number.
EPSILON = 1e-6

#: Name after ``sentinel_`` -> the estimator.
ESTIMATORS: dict[str, Callable[[Responses], Tensor]] = {
    "grpo": lambda x: grpo.advantages(x.reward, **x.arguments, standardize=x.by_deviation, epsilon=EPSILON),
    "rloo": lambda x: rloo.advantages(x.reward, **x.arguments),
    "opo": lambda x: opo.advantages(x.reward, **x.arguments, length=x.length),
    "grpo_passk": lambda x: passk.advantages(x.reward, **x.arguments),
    "gpg": lambda x: gpg.advantages(x.reward, **x.arguments),
    "reinforce_plus_plus_baseline": lambda x: reinforce_plus_plus_baseline.advantages(
        x.reward, **x.arguments, epsilon=EPSILON
    ),
}


def clips(config: Any) -> dict[str, float]:  # noqa: ANN401 - verl's configuration, of several classes over its releases
    """The lower and the upper clip: the setting of that side or, if it is None, the setting for both sides."""
    both = config.clip_ratio
    clips = {"clip_low": config.clip_ratio_low, "clip_high": config.clip_ratio_high}
    return {name: both if clip is None else clip for name, clip in clips.items()}


#: Name after ``sentinel_`` -> the loss.
LOSSES: dict[str, Callable[[Update], Tensor]] = {
    "vanilla": lambda x: x.loss(dual_clip.loss, **clips(x.config), ceiling=x.config.get("clip_ratio_c", 3.0)),
    "gspo": lambda x: x.loss(gspo.loss, **clips(x.config)),
    "cispo": lambda x: x.loss(cispo.loss, **clips(x.config)),
    "sapo": lambda x: x.loss(sapo.loss, temperature=x.config.tau_pos, negative_temperature=x.config.tau_neg),
    "dro": lambda x: x.loss(dro.loss, penalty=nan if (beta := x.config.policy_loss.dro_beta) is None else beta),
}

#: Loss -> the aggregation that verl always uses for it, whatever ``loss_agg_mode`` says.
ALWAYS = {"sapo": "seq-mean-token-mean"}


def _advantages(
    estimator: Callable[[Responses], Tensor],
    *,
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: object,
    config: Any = None,  # noqa: ANN401 - verl's configuration
    **_more: object,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns ``[B, T]`` in the form of verl; the outcome is the sum of a row's rewards."""
    mask = response_mask.bool()
    by_deviation = bool(config.get("norm_adv_by_std_in_grpo", True)) if config is not None else True
    inputs = responses(token_level_rewards, mask=mask, index=index, by_deviation=by_deviation)
    return per_token(estimator(inputs), mask=mask)


def _loss(  # noqa: PLR0913 - verl's signature
    function: Callable[[Update], Tensor],
    always: str | None,
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,  # noqa: ANN401 - verl's configuration
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss and the metrics that verl logs; weights of the rollout correction scale the advantages."""
    mask = response_mask.bool()
    weighted = advantages if rollout_is_weights is None else advantages * rollout_is_weights
    denominator = aggregation_of(mask, always or loss_agg_mode, **config.global_batch_info)
    update = Update(log_prob, old_log_prob, weighted, mask, denominator, config)
    metrics = {"actor/pg_clipfrac": update.clipped(**clips(config)), "actor/ppo_kl": update.moved()}
    return function(update), {**metrics, "actor/pg_clipfrac_lower": 0.0}


for name, estimator in ESTIMATORS.items():
    core_algos.register_adv_est(f"sentinel_{name}")(partial(_advantages, estimator))

if hasattr(core_algos, "register_policy_loss"):  # absent before 0.5
    for name, function in LOSSES.items():
        core_algos.register_policy_loss(f"sentinel_{name}")(partial(_loss, function, ALWAYS.get(name)))
