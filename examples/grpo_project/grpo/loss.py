"""The clipped loss of PPO, with a mean over the trained tokens of the batch."""

import torch
from torch import Tensor


def policy_loss(
    logprobs: Tensor, old_logprobs: Tensor, adv: Tensor, response_mask: Tensor, clip_eps: float = 0.2
) -> Tensor:
    """One number from ``[B, T]`` log-probs and mask, and advantages ``[B]``."""
    ratio = torch.exp(logprobs - old_logprobs)
    clipped = torch.clamp(ratio, 1 - clip_eps, 1 + clip_eps)
    losses = -torch.minimum(ratio * adv[:, None], clipped * adv[:, None])
    mask = response_mask.bool()
    return torch.where(mask, losses, 0.0).sum() / mask.sum().clamp(min=1)
