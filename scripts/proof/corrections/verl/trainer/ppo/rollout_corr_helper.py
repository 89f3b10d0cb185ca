# Corrections of verl/trainer/ppo/rollout_corr_helper.py (0.9.1).
# - Means over sequences leave out those without a trained token.


_over_all_rows = compute_offpolicy_metrics


def compute_offpolicy_metrics(old_log_prob, rollout_log_prob, response_mask):
    live = response_mask.any(-1)
    rollout = None if rollout_log_prob is None else rollout_log_prob[live]
    return _over_all_rows(old_log_prob[live], rollout, response_mask[live])
