# Corrections of skyrl/backends/skyrl_train/utils/ppo_utils.py (0.3.0); the registry keeps the functions, with new code.
# - GRPO: equal rewards give exactly 0, since the mean is taken of differences.
# - GAE: tokens that are not trained are passed over.


def _grpo(token_level_rewards, response_mask, index, epsilon=1e-6, grpo_norm_by_std=True, **kwargs):
    scores = token_level_rewards.sum(-1)
    for name in set(index):
        rows = torch.tensor([label == name for label in index])
        if rows.sum() > 1:
            group = scores[rows] - scores[rows][0]
            group = group - group.mean()
            scores[rows] = group / (group.std() + epsilon) if grpo_norm_by_std else group
    advantages = scores.unsqueeze(-1) * response_mask
    return advantages, advantages


def _gae(token_level_rewards, values, response_mask, gamma, lambd, **kwargs):
    advantages = torch.zeros_like(token_level_rewards)
    ahead = following = torch.zeros_like(advantages[:, 0])
    for t in reversed(range(advantages.shape[1])):
        trained, value = response_mask[:, t].bool(), values[:, t]
        step = token_level_rewards[:, t] + gamma * following - value + gamma * lambd * ahead
        ahead, following = torch.where(trained, step, ahead), torch.where(trained, value, following)
        advantages[:, t] = ahead
    count = response_mask.sum().clamp(min=1)
    centred = (advantages - (advantages * response_mask).sum() / count) * response_mask
    variance = centred.square().sum() / (count - 1).clamp(min=1)
    return centred * (variance + 1e-8).rsqrt(), advantages + values


compute_grpo_outcome_advantage.__wrapped__.__code__ = _grpo.__code__
compute_gae_advantage_return.__wrapped__.__code__ = _gae.__code__
