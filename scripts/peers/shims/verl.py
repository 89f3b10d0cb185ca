"""verl's estimators, KL, losses, aggregation and rollout correction, computed by ours."""

from math import log, nan
from typing import Any

import torch
from torch import Tensor

from peers.peer import Peer
from peers.shims.columns import either, outcome, rewards_to_go, whitened
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.core.errors import InputError
from rl_sentinel.remedies.framework_inputs import aggregation_of
from rl_sentinel.signal import kl, metrics
from rl_sentinel.signal.advantage import gae, grpo, reinforce_plus_plus, rloo
from rl_sentinel.signal.align import spread
from rl_sentinel.signal.correction import bounds, rejection, weights
from rl_sentinel.signal.loss import dro, dual_clip
from rl_sentinel.signal.reduce import Aggregation, aggregate, live_rows, row_means
from rl_sentinel.signal.value import value_loss

_KLS = {
    **dict.fromkeys(("kl", "k1"), kl.k1),
    **dict.fromkeys(("mse", "k2", "k2+", "mse+"), kl.k2),
    **dict.fromkeys(("low_var_kl", "k3"), kl.k3),
    **dict.fromkeys(("kl+", "k1+"), kl.k1_plus),
    **dict.fromkeys(("low_var_kl+", "k3+"), kl.k3_plus),
    "abs": kl.absolute,
    "abs+": kl.absolute_plus,
}

_OVER: dict[str, rejection.Over] = {"seq_sum": "sum", "seq_mean": "mean", "seq_max": "max"}


def _grpo(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Any,  # noqa: ANN401 - labels of any kind
    epsilon: float = 1e-6,
    norm_adv_by_std_in_grpo: bool = True,  # noqa: FBT001, FBT002 - verl's signature
    **_more: object,
) -> tuple[Tensor, Tensor]:
    numbers = {"standardize": norm_adv_by_std_in_grpo, "epsilon": epsilon}
    return outcome(grpo.advantages, token_level_rewards, response_mask, index, **numbers)


def _rloo(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Any,  # noqa: ANN401 - labels of any kind
    **_more: object,
) -> tuple[Tensor, Tensor]:
    return outcome(rloo.advantages, token_level_rewards, response_mask, index)


def _gae(
    token_level_rewards: Tensor, values: Tensor, response_mask: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    mask = response_mask.bool()
    found = gae.advantages(token_level_rewards, values, mask=mask, discount=gamma, decay=lam)
    return whitened(found, mask), torch.where(mask, found + values, torch.zeros_like(values))


def _reinforce_plus_plus(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    config: Any = None,  # noqa: ANN401 - verl's configuration
    **_more: object,
) -> tuple[Tensor, Tensor]:
    mask, discount = response_mask.bool(), config.gamma
    found = reinforce_plus_plus.advantages(token_level_rewards, mask=mask, discount=discount, epsilon=1e-8)
    return found, rewards_to_go(token_level_rewards, mask=mask, discount=discount)


def _kl(logprob: Tensor, ref_logprob: Tensor, kl_penalty: str) -> Tensor:
    if kl_penalty not in _KLS:
        raise NotImplementedError
    return _KLS[kl_penalty](logprob, ref_logprob, mask=torch.ones_like(logprob, dtype=torch.bool))


def _agg_loss(loss_mat: Tensor, loss_mask: Tensor, loss_agg_mode: str, **counts: Any) -> Tensor:  # noqa: ANN401
    mask = loss_mask.bool()
    return aggregate(loss_mat, mask=mask, aggregation=aggregation_of(mask, loss_agg_mode, **counts))


def _value_loss(  # noqa: PLR0913 - verl's signature
    vpreds: Tensor,
    returns: Tensor,
    values: Tensor,
    response_mask: Tensor,
    cliprange_value: float,
    loss_agg_mode: str = "token-mean",
    **counts: Any,  # noqa: ANN401
) -> tuple[Tensor, Tensor]:
    mask = response_mask.bool()
    over = aggregation_of(mask, loss_agg_mode, **counts)
    found = value_loss(vpreds, values, returns, mask=mask, value_clip=cliprange_value, aggregation=over)
    near = values + (vpreds - values).clamp(-cliprange_value, cliprange_value)
    return found, metrics.share((near - returns).square() > (vpreds - returns).square(), mask=mask)


def _dual_clip(  # noqa: PLR0913 - verl's signature
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,  # noqa: ANN401 - verl's configuration
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    mask = response_mask.bool()
    weighed = advantages if rollout_is_weights is None else advantages * rollout_is_weights
    clips = {"clip_low": either(config.clip_ratio_low, config.clip_ratio)}
    clips |= {
        "clip_high": either(config.clip_ratio_high, config.clip_ratio),
        "ceiling": config.get("clip_ratio_c", 3.0),
    }
    over = aggregation_of(mask, loss_agg_mode, **config.global_batch_info)
    return dual_clip.loss(log_prob, old_log_prob, weighed, mask=mask, **clips, aggregation=over), {}


def _dro(  # noqa: PLR0913 - verl's signature
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,  # noqa: ANN401 - verl's configuration
    **_more: object,
) -> tuple[Tensor, dict[str, float]]:
    mask, penalty = response_mask.bool(), either(config.policy_loss.dro_beta, nan)
    over = aggregation_of(mask, loss_agg_mode, **config.global_batch_info)
    try:
        return dro.loss(log_prob, old_log_prob, advantages, mask=mask, penalty=penalty, aggregation=over), {}
    except InputError as error:
        raise InputError(str(error).replace("penalty", "dro_beta")) from error


def _masked_mean(values: Tensor, mask: Tensor, axis: int | None = None) -> Tensor:
    where = mask.bool().expand_as(values)
    if axis is not None:
        return row_means(values, mask=where)
    one = Aggregation("token-mean", float(where.sum()))
    return aggregate(values.reshape(1, -1), mask=where.reshape(1, -1), aggregation=one)


def _correction_weights(
    log_ratio: Tensor,
    response_mask: Tensor,
    rollout_is: str = "token",
    rollout_is_threshold: Any = 2.0,  # noqa: ANN401 - a number, or words for two
    rollout_is_batch_normalize: bool = False,  # noqa: FBT001, FBT002 - verl's signature
) -> tuple[Tensor, dict[str, float]]:
    from verl.trainer.ppo.rollout_corr_helper import _parse_rollout_is_threshold  # noqa: PLC0415 - reads configuration

    high, low = _parse_rollout_is_threshold(rollout_is_threshold)
    mask, ours = (
        response_mask.bool(),
        {"token": weights.token_weights, "sequence": weights.sequence_weights}[rollout_is],
    )
    raw = ours(log_ratio, torch.zeros_like(log_ratio), mask=mask)
    where = mask if raw.dim() == 2 else live_rows(mask)
    held = (
        bounds.truncated(raw, mask=where, high=high)
        if low is None
        else bounds.masked(raw, mask=where, low=low, high=high)
    )
    told = _told(held, raw, where, high, low)
    told["rollout_is_oob_ratio"] = metrics.share((raw < (low or 0.0)) | (raw > high), mask=where).item()
    held = bounds.self_normalized(held, mask=where) if rollout_is_batch_normalize else held
    return (held if where is mask else spread(held, mask=mask)), told


def _is_metrics(  # noqa: PLR0913 - verl's signature
    rollout_is_weights: Tensor,
    raw_rollout_is_weights: Tensor,
    log_ratio_for_metrics: Tensor,  # noqa: ARG001 - the weights say as much
    response_mask: Tensor,
    rollout_is: str,  # noqa: ARG001
    rollout_is_threshold: float,
    rollout_is_threshold_lower: float | None = None,
) -> dict[str, float]:
    mask = response_mask.bool()
    return _told(rollout_is_weights, raw_rollout_is_weights, mask, rollout_is_threshold, rollout_is_threshold_lower)


def _told(held: Tensor, raw: Tensor, mask: Tensor, high: float, low: float | None) -> dict[str, float]:
    """Our metrics of weights by verl's names, per token or per row."""
    low = 1 / high if low is None else low
    of_rows = (lambda x: row_means(x, mask=mask), live_rows(mask)) if mask.dim() == 2 else (lambda x: x, mask)
    found = metrics.statistics(held, mask=mask)
    told = {"mean": found.mean, "std": found.deviation, "max": found.most, "min": found.least}
    told["eff_sample_size"] = metrics.effective_sample_size(held, mask=mask)
    told["ratio_fraction_high"] = metrics.share(raw > high, mask=mask)
    told["ratio_fraction_low"] = metrics.share(raw < low, mask=mask)
    told["seq_fraction_high"] = metrics.share(of_rows[0](raw) > high, mask=of_rows[1])
    told["seq_fraction_low"] = metrics.share(of_rows[0](raw) < low, mask=of_rows[1])
    return {f"rollout_is_{name}": number.item() for name, number in told.items()}


def _rejection_mask(
    log_ratio: Tensor,
    response_mask: Tensor,
    rollout_rs: str = "token_k1",
    rollout_rs_threshold: Any = None,  # noqa: ANN401 - a number, or words for several
) -> tuple[Tensor, dict[str, float]]:
    from verl.trainer.ppo.rollout_corr_helper import _parse_rollout_rs_thresholds  # noqa: PLC0415 - reads configuration

    options = [option.strip() for option in rollout_rs.split(",")]
    read = _parse_rollout_rs_thresholds(options, rollout_rs_threshold)
    mask, nothing = response_mask.bool(), torch.zeros_like(log_ratio)
    kept, told = mask, {}
    for option in options:
        over, _, estimator = option.rpartition("_")
        ratio = estimator == "k1"
        low = log(read[option]["lower"]) if ratio else -torch.inf
        high = log(read[option]["upper"]) if ratio else read[option]["upper"]
        numbers: dict[str, Any] = {"mask": mask, "estimator": estimator, "low": low, "high": high}
        if over == "token":
            keep = rejection.tokens_kept(log_ratio, nothing, **numbers)
        else:
            rows = rejection.rows_kept(log_ratio, nothing, **numbers, over=_OVER[over])
            keep = mask & rows.unsqueeze(1)
        kept = kept & keep
        estimate = _KLS[estimator](-log_ratio, nothing, mask=mask)
        told[f"rollout_rs_{option}_mean"] = metrics.statistics(estimate, mask=mask).mean.item()
    told["rollout_rs_masked_fraction"] = metrics.share(~kept, mask=mask).item()
    return kept.to(response_mask.dtype), told


_CORE, _HELPER = "verl.trainer.ppo.core_algos", "verl.trainer.ppo.rollout_corr_helper"

PEER = Peer(
    framework=FRAMEWORK,
    release="verl==0.9.1",
    revision="v0.9.0",
    ours={
        f"{_CORE}.compute_grpo_outcome_advantage": _grpo,
        f"{_CORE}.compute_grpo_vectorized_outcome_advantage": _grpo,
        f"{_CORE}.compute_rloo_outcome_advantage": _rloo,
        f"{_CORE}.compute_rloo_vectorized_outcome_advantage": _rloo,
        f"{_CORE}.compute_gae_advantage_return": _gae,
        f"{_CORE}.compute_reinforce_plus_plus_outcome_advantage": _reinforce_plus_plus,
        f"{_CORE}.kl_penalty": _kl,
        f"{_CORE}.agg_loss": _agg_loss,
        f"{_CORE}.compute_value_loss": _value_loss,
        f"{_CORE}.compute_policy_loss_vanilla": _dual_clip,
        f"{_CORE}.compute_policy_loss_dro": _dro,
        f"{_HELPER}.compute_rollout_correction_weights": _correction_weights,
        f"{_HELPER}.compute_rollout_rejection_mask": _rejection_mask,
        f"{_HELPER}.compute_is_metrics": _is_metrics,
        "verl.utils.torch_functional.masked_mean": _masked_mean,
    },
    named=("rollout_corr", "compute_advantage"),
)
