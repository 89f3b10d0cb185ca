# Corrections of skyrl/backends/skyrl_train/utils/ppo_utils.py (0.3.0); the registry keeps the functions, with new code.
# - GRPO: equal rewards give exactly 0, since the mean is taken of differences.
# - Clip-Cov and KL-Cov use advantages that are not divided yet, and KL-Cov's penalty is divided as they are.
# - GAE: tokens that are not trained are passed over.

import inspect
import sys

from replaced import replaced


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
    centered = (advantages - (advantages * response_mask).sum() / count) * response_mask
    variance = centered.square().sum() / (count - 1).clamp(min=1)
    return centered * (variance + 1e-8).rsqrt(), advantages + values


compute_grpo_outcome_advantage.__wrapped__.__code__ = _grpo.__code__
compute_gae_advantage_return.__wrapped__.__code__ = _gae.__code__


_scaled = apply_loss_reduction_to_advantages_minibatch


def apply_loss_reduction_to_advantages_minibatch(advantages, *args, **kwargs):
    scaled = _scaled(advantages, *args, **kwargs)
    scaled.unscaled, scaled.weight = advantages, _scaled(torch.ones_like(advantages), *args, **kwargs)
    return scaled


def _with_unscaled(name, changes):
    changed = replaced(sys.modules[__name__], name, changes)
    inspect.unwrap(globals()[name]).__code__ = changed.__code__  # the registry keeps the function


_MEAN = "masked_mean(advantages, loss_mask)"
_with_unscaled(
    "compute_policy_loss_clip_cov",
    {f"(advantages - {_MEAN})": f"(advantages.unscaled - {_MEAN.replace('advantages', 'advantages.unscaled')})"},
)
_with_unscaled(
    "compute_policy_loss_kl_cov",
    {
        "ppo_kl_coef * abs_kl": "ppo_kl_coef * abs_kl * advantages.weight",
        "all_valid_adv = advantages[all_valid]": "all_valid_adv = advantages.unscaled[all_valid]",
    },
)
