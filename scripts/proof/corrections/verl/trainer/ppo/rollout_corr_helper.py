# Corrections of verl/trainer/ppo/rollout_corr_helper.py (0.9.1).
# - Where no weight is above 0, the effective sample size is 0.
# - Means over sequences leave out those without a trained token.

import sys

from replaced import replaced

_over_all_rows = compute_offpolicy_metrics


def compute_offpolicy_metrics(old_log_prob, rollout_log_prob, response_mask):
    live = response_mask.any(-1)
    rollout = None if rollout_log_prob is None else rollout_log_prob[live]
    return _over_all_rows(old_log_prob[live], rollout, response_mask[live])


compute_is_metrics = replaced(
    sys.modules[__name__],
    "compute_is_metrics",
    {
        "1.0 / verl_F.masked_mean(is_weights_normalized.square(), response_mask).item()": (
            "1.0 / (verl_F.masked_mean(is_weights_normalized.square(), response_mask).item() or float('inf'))"
        )
    },
)
