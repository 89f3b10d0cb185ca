# Corrections of slime/backends/megatron_utils/loss.py (624b824a8).
# - No KL is paid at tokens that are not trained: there the reference is the policy itself.


_paid_everywhere = compute_advantages_and_returns


def compute_advantages_and_returns(args, rollout_data):
    policy = rollout_data.get("rollout_log_probs" if args.use_rollout_logprobs else "log_probs")
    reference = rollout_data.get("ref_log_probs")
    if policy and reference:
        columns = zip(rollout_data["loss_masks"], reference, policy)
        rollout_data["ref_log_probs"] = [torch.where(mask.bool(), ref, own) for mask, ref, own in columns]
    _paid_everywhere(args, rollout_data)
    if reference:
        rollout_data["ref_log_probs"] = reference


# - A sample without a trained token counts no token.


_clamped = loss_function


def loss_function(args, batch, num_microbatches, step_global_batch_size, logits):
    loss, normalizer, log = _clamped(args, batch, num_microbatches, step_global_batch_size, logits)
    if args.calculate_per_token_loss:
        normalizer = sum(mask.sum() for mask in batch["loss_masks"])
        log["values"][0] = normalizer
    return loss, normalizer, log
