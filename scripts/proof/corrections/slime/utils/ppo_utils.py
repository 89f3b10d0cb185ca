# Corrections of slime/utils/ppo_utils.py (624b824a8).
# - A response is kept or rejected as a whole, by the mean advantage of its trained tokens.


def compute_opsm_mask(args, full_log_probs, full_old_log_probs, advantages, loss_masks):
    kept, rejected = [], torch.tensor(0.0)
    for new, old, advantage, mask in zip(full_log_probs, full_old_log_probs, advantages, loss_masks):
        count = mask.sum().clamp(min=1)
        divergence = ((old - new) * mask).sum() / count
        reject = ((advantage * mask).sum() < 0) & (divergence > args.opsm_delta)
        kept.append(torch.full_like(advantage, 1.0 - float(reject)))
        rejected = rejected + reject.float()
    return torch.cat(kept), rejected
