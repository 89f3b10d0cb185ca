# Corrections of skyrl/backends/skyrl_train/workers/worker_utils.py (0.3.0).
# - The smallest gap of log-probs is that of a trained token.
# - Means of the gap are means over the tokens of all micro-batches.


_TOKENS = f"{MINIBATCH_ROLLOUT_LOGPROB_DIFF_PREFIX}_tokens"
_of_all_positions = compute_minibatch_rollout_logprob_diff_metrics
_alike = reduce_metrics


def compute_minibatch_rollout_logprob_diff_metrics(action_log_probs, rollout_logprobs, loss_mask):
    metrics = _of_all_positions(action_log_probs, rollout_logprobs, loss_mask)
    if metrics:
        trained = torch.ones_like(action_log_probs) if loss_mask is None else loss_mask
        gap = (action_log_probs - rollout_logprobs).abs().masked_fill(~trained.bool(), float("inf"))
        metrics[MINIBATCH_ROLLOUT_LOGPROB_DIFF_MIN_KEY] = gap.min().item()
        metrics[_TOKENS] = float(trained.sum())
    return metrics


def reduce_metrics(metrics, sum_loss_metrics=False):
    tokens = metrics.get(_TOKENS)
    reduced = _alike(metrics, sum_loss_metrics)
    if tokens:
        for key in (MINIBATCH_ROLLOUT_LOGPROB_DIFF_MEAN_KEY, MINIBATCH_ROLLOUT_LOGPROB_DIFF_SQ_MEAN_KEY):
            reduced[key] = sum(x * n for x, n in zip(metrics[key], tokens, strict=True)) / max(sum(tokens), 1.0)
        del reduced[_TOKENS]
    return reduced
