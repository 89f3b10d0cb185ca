"""SkyRL's corrections for the policy that sampled: weights, and masks of tokens and of rows."""

from collections.abc import Callable
from math import log
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.signal import metrics
from rl_sentinel.signal.correction import bounds, rejection, trust, weights
from rl_sentinel.signal.reduce import live_rows, row_counts

#: What each of ours hands back: a weight or a mask as numbers, and what SkyRL logs of it.
Told = tuple[Tensor, dict[str, float]]


def _ratio(
    old_log_probs: Tensor,
    rollout_logprobs: Tensor,
    loss_mask: Tensor,
    tis_ratio_type: str,
    off_policy_correction: Any,  # noqa: ANN401 - SkyRL's configuration
) -> Told:
    mask = loss_mask.bool()
    if tis_ratio_type == "token":
        weight, high = weights.token_weights(old_log_probs, rollout_logprobs, mask=mask), "token_tis_ratio_clip_high"
        where, name = mask, "tis_token_clip_high_ratio"
    elif tis_ratio_type == "sequence":
        weight = weights.sequence_weights(old_log_probs, rollout_logprobs, mask=mask)
        where, name, high = live_rows(mask), "tis_seq_clip_high_ratio", "sequence_tis_ratio_clip_high"
    else:
        raise ValueError(f"Unknown tis_ratio_type: {tis_ratio_type}")
    most = getattr(off_policy_correction, high)
    held = bounds.truncated(weight, mask=where, high=most)
    told = {name: metrics.share(weight > most, mask=where).item()}
    return (held if where is mask else held.unsqueeze(1)), told


def _rows(keep: Tensor, mask: Tensor) -> tuple[Tensor, float]:
    """Decisions in SkyRL's form, of which a row without trained tokens is kept, and the share that is dropped."""
    live = live_rows(mask)
    lost = trust.rejected_fraction(keep, live=live, denominator=float(len(keep)))
    return (keep | ~live).float().unsqueeze(1), lost.item()


def _outliers(
    old_log_probs: Tensor,
    rollout_logprobs: Tensor,
    loss_mask: Tensor,
    off_policy_correction: Any,  # noqa: ANN401
) -> Told:
    mask, chosen = loss_mask.bool(), off_policy_correction
    low, high = chosen.outlier_token_is_threshold_low, chosen.outlier_token_is_threshold_high
    limits = {"low": -torch.inf if high is None else -log(high), "high": torch.inf if low is None else -log(low)}
    free = {"low": -torch.inf, "high": torch.inf}

    def kept(**sides: float) -> Tensor:
        found = rejection.tokens_kept(old_log_probs, rollout_logprobs, mask=mask, estimator="k1", **(free | sides))
        return live_rows(mask) & (row_counts(mask=found) == row_counts(mask=mask))

    keep, lost = _rows(kept(**limits), mask)
    told = {"outlier_seq_masked_ratio": lost}
    told["outlier_seq_over_high_ratio"] = _rows(kept(low=limits["low"]), mask)[1]
    told["outlier_seq_under_low_ratio"] = _rows(kept(high=limits["high"]), mask)[1]
    return keep, told


def _sequences(
    old_log_probs: Tensor,
    rollout_logprobs: Tensor,
    loss_mask: Tensor,
    sequence_mask_metric: str,
    off_policy_correction: Any,  # noqa: ANN401
) -> Told:
    prefixes = {"geometric": ("geo", "mean"), "product": ("product", "sum")}
    if sequence_mask_metric not in prefixes:
        raise ValueError(f"Unknown sequence_mask_metric: {sequence_mask_metric}")
    mask, (prefix, over) = loss_mask.bool(), prefixes[sequence_mask_metric]
    low, high = (getattr(off_policy_correction, f"{prefix}_mask_{side}") for side in ("low", "high"))

    def kept(least: float, most: float) -> Tensor:
        told: dict[str, Any] = {"mask": mask, "estimator": "k1", "over": over, "low": least, "high": most}
        return rejection.rows_kept(old_log_probs, rollout_logprobs, **told)

    keep, lost = _rows(kept(-log(high), -log(low)), mask)
    told = {f"{prefix}_sequence_mask_masked_ratio": lost}
    told[f"{prefix}_sequence_mask_over_high_ratio"] = _rows(kept(-log(high), torch.inf), mask)[1]
    told[f"{prefix}_sequence_mask_under_low_ratio"] = _rows(kept(-torch.inf, -log(low)), mask)[1]
    return keep, told


def _tokens(
    old_log_probs: Tensor,
    rollout_logprobs: Tensor,
    loss_mask: Tensor,
    off_policy_correction: Any,  # noqa: ANN401
) -> Told:
    mask, chosen = loss_mask.bool(), off_policy_correction
    limits = {"low": chosen.token_mask_is_threshold_low, "high": chosen.token_mask_is_threshold_high}
    weight = weights.token_weights(old_log_probs, rollout_logprobs, mask=mask)
    dropped = mask & (bounds.masked(weight, mask=mask, **limits) == 0)
    return (~dropped).float(), {"token_mask_ratio": metrics.share(dropped, mask=mask).item()}


OURS: dict[str, Callable[..., Told]] = {
    "compute_tis_ratio": _ratio,
    "compute_outlier_token_mask": _outliers,
    "compute_token_mask": _tokens,
    "compute_sequence_mask": _sequences,
}
