"""Variants of usual algorithms, correct ones and some with one fault, as public code writes them."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

SAMPLES = 4
MAX_LENGTH = 16


class args:  # noqa: N801 - scripts with one file name the class of their settings so
    """Settings of a script."""

    clip_coef = 0.2


@dataclass
class Clip:
    """Clip range of a nested configuration."""

    low: float = 0.2
    high: float = 0.28


@dataclass
class Config:
    """A configuration with the number of responses per prompt."""

    num_generations: int = 4
    clip: Clip = field(default_factory=Clip)


def _surrogate(ratio: Tensor, advantages: Tensor, low: float = 0.2, high: float = 0.2) -> Tensor:
    return -torch.min(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def _token_mean(tokens: Tensor, mask: Tensor) -> Tensor:
    return (tokens * mask).sum() / mask.sum().clamp(min=1)


def class_settings(newlogprob: Tensor, b_logprobs: Tensor, b_advantages: Tensor) -> Tensor:
    ratio = (newlogprob - b_logprobs).exp()
    clipped = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
    return torch.max(-b_advantages * ratio, -b_advantages * clipped).mean()


def class_settings_least(newlogprob: Tensor, b_logprobs: Tensor, b_advantages: Tensor) -> Tensor:
    """The smaller of the two losses."""
    ratio = (newlogprob - b_logprobs).exp()
    clipped = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
    return torch.min(-b_advantages * ratio, -b_advantages * clipped).mean()


class Algorithm:
    """Losses with a nested configuration."""

    def __init__(self) -> None:
        """The default configuration, and numbers that hide what they do."""
        self.config, self.gamma, self.lam = Config(), 1.0, 0.95
        self.clip_low = self.clip_high = 0.2

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        ratio = (batch["logprobs"] - batch["old_logprobs"]).exp()
        loss = _surrogate(ratio, batch["advantages"], self.config.clip.low, self.config.clip.high)
        return _token_mean(loss, batch["response_mask"])

    def swapped_equals(self, batch: dict[str, Tensor]) -> Tensor:
        """The lower bound on both sides, which equal bounds hide."""
        ratio = (batch["logprobs"] - batch["old_logprobs"]).exp()
        loss = _surrogate(ratio, batch["advantages"], self.clip_low, self.clip_low + 0 * self.clip_high)
        return _token_mean(loss, batch["response_mask"])

    def undiscounted(self, rewards: Tensor, values: Tensor) -> Tensor:
        """GAE whose decay leaves out the discount; rewards, values: [B, T]."""
        return undiscounted(rewards, values, self.gamma, self.lam)

    def swapped(self, batch: dict[str, Tensor]) -> Tensor:
        """The bounds of the clip range, one for the other."""
        ratio = (batch["logprobs"] - batch["old_logprobs"]).exp()
        loss = _surrogate(ratio, batch["advantages"], self.config.clip.high, self.config.clip.low)
        return _token_mean(loss, batch["response_mask"])


def normalizing(logprob: Tensor, old_logprob: Tensor, advantages: Tensor, clip_range: float = 0.2) -> Tensor:
    """A loss that normalizes its advantages, and takes the smaller one."""
    scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = (logprob - old_logprob).exp()
    return torch.min(-scaled * ratio, -scaled * torch.clamp(ratio, 1 - clip_range, 1 + clip_range)).mean()


def cispo(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, epsilon_high: float = 5.0) -> Tensor:
    """CISPO with an upper bound of its weights only; advantages: (B,)."""
    weight = (logps - old_logps).exp().clamp(max=epsilon_high).detach()
    return _token_mean(-weight * advantages.unsqueeze(1) * logps, mask)


def cispo_by_literal(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    weight = (logps - old_logps).exp().clamp(max=5.0).detach()
    return _token_mean(-weight * advantages * logps, mask)


def cispo_with_gradient(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """A gradient through the weights."""
    weight = (logps - old_logps).exp().clamp(max=5.0)
    return _token_mean(-weight * advantages * logps, mask)


def dr_grpo(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, max_tokens: int = 8) -> Tensor:
    loss = _surrogate((logps - old_logps).exp(), advantages)
    return (loss * mask).sum(-1).div(max_tokens).mean()


def dr_grpo_by_global(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    loss = _surrogate((logps - old_logps).exp(), advantages)
    return (loss * mask).sum() / (len(loss) * MAX_LENGTH)


def helper_of_the_largest(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """The larger product, with a clip range that only a helper holds."""
    ratio = (logps - old_logps).exp()
    return _token_mean(-_surrogate(ratio, -advantages), mask)


def helper_twice_divided(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """A mean over tokens that is divided by the rows too."""
    return _token_mean(_surrogate((logps - old_logps).exp(), advantages), mask) / len(mask)


def dr_grpo_by_lengths(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """The length bias that Dr. GRPO removes."""
    loss = _surrogate((logps - old_logps).exp(), advantages)
    return (loss * mask).sum(-1).div(mask.sum(-1).clamp(min=1)).mean()


def by_items(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, num_items_in_batch: int) -> Tensor:
    loss = _surrogate((logps - old_logps).exp(), advantages)
    return (loss * mask).sum() / num_items_in_batch


def of_responses(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, clip: float = 0.2) -> Tensor:
    """PPO of whole responses; advantages: [B]."""
    ratio = ((logps - old_logps) * mask).sum(1).exp()
    return _surrogate(ratio, advantages, clip, clip).mean()


def of_mean_ratios(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, clip: float = 0.2) -> Tensor:
    """The geometric mean of the ratios in place of their product; advantages: [B]."""
    ratio = (((logps - old_logps) * mask).sum(1) / mask.sum(1).clamp(min=1)).exp()
    return _surrogate(ratio, advantages, clip, clip).mean()


def by_batch(rewards: Tensor, num_generations: int) -> Tensor:
    """GRPO with the deviation of the batch."""
    mean = rewards.view(-1, num_generations).mean(1).repeat_interleave(num_generations)
    return (rewards - mean) / (rewards.std() + 1e-4)


def by_group(rewards: Tensor, num_generations: int) -> Tensor:
    """GRPO with the deviation of each group."""
    grouped = rewards.view(-1, num_generations)
    return ((grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)).flatten()


def one_prompt(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean()


def one_prompt_documented(rewards: Tensor) -> Tensor:
    """The rewards [K] of one prompt against their mean."""
    return rewards - rewards.mean()


def one_prompt_listed(rewards: list[float]) -> list[float]:
    mean = sum(rewards) / len(rewards)
    return [r - mean for r in rewards]


def one_prompt_by_token(token_level_rewards: Tensor, response_mask: Tensor) -> Tensor:
    outcome = token_level_rewards.sum(-1)
    return ((outcome - outcome.mean()) / (outcome.std() + 1e-6)).unsqueeze(-1) * response_mask


def one_prompt_inverted(rewards: Tensor) -> Tensor:
    """A mean that is too large by n / (n - 1)."""
    return rewards - rewards.sum() / (len(rewards) - 1)


def _by_position(rewards: Tensor, size: int) -> Tensor:
    return by_group(rewards, size)


def size_of_config(rewards: Tensor, config: Any = Config()) -> Tensor:  # noqa: B008 - as public code does
    return _by_position(rewards, config.num_generations)


def size_of_global(rewards: Tensor) -> Tensor:
    grouped = rewards.view(-1, SAMPLES)
    return (grouped - grouped.mean(1, keepdim=True)).flatten()


def size_of_default(rewards: Tensor, k: int = 4) -> Tensor:
    grouped = rewards.view(-1, k)
    return (grouped - grouped.mean(1, keepdim=True)).flatten()


def size_of_default_inverted(rewards: Tensor, k: int = 4) -> Tensor:
    """The other sign."""
    return -size_of_default(rewards, k)


def unnormalized(logits: Tensor, index: Tensor) -> Tensor:
    """The logits of the tokens in place of their log-probs."""
    return logits.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def truncated_sampling(  # noqa: PLR0913 - columns and two numbers
    logps: Tensor,
    old_logps: Tensor,
    rollout_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip_eps: float = 0.2,
    cap: float = 2.0,
) -> Tensor:
    weight = (old_logps - rollout_logps).exp().clamp(max=cap).detach()
    return _token_mean(_surrogate((logps - old_logps).exp(), advantages, clip_eps, clip_eps) * weight, mask)


def truncated_sampling_of_the_largest(  # noqa: PLR0913 - columns and a number
    logps: Tensor, old_logps: Tensor, rollout_logps: Tensor, advantages: Tensor, mask: Tensor, clip_eps: float = 0.2
) -> Tensor:
    """The larger product, with the weight of truncated sampling."""
    weight = (old_logps - rollout_logps).exp().clamp(max=2).detach()
    return _token_mean(-_surrogate((logps - old_logps).exp(), -advantages, clip_eps, clip_eps) * weight, mask)


def done_at_the_end(rewards: Tensor, values: Tensor, dones: Tensor, gamma: float = 0.99, lam: float = 0.95) -> Tensor:
    """GAE that ends where a step is done; rewards, values, dones: [B, T]."""
    advantage, last = torch.zeros_like(values), torch.zeros(len(values))
    after = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], 1)
    for t in reversed(range(values.shape[1])):
        on = 1 - dones[:, t]
        last = rewards[:, t] + gamma * after[:, t] * on - values[:, t] + gamma * lam * on * last
        advantage[:, t] = last
    return advantage


def unused_penalty(  # noqa: PLR0913 - columns and two numbers
    logps: Tensor,
    old_logps: Tensor,
    ref_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip_eps: float = 0.2,
    beta: float = 0.0,
) -> Tensor:
    """A penalty of the wrong sign, which the default leaves out."""
    loss = _surrogate((logps - old_logps).exp(), advantages, clip_eps, clip_eps)
    gap = ref_logps - logps
    return _token_mean(loss - beta * (gap.exp() - gap - 1), mask)


def unused_bonus(  # noqa: PLR0913 - columns and two numbers
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    entropy: Tensor,
    mask: Tensor,
    clip_eps: float = 0.2,
    entropy_coef: float = 0.0,
) -> Tensor:
    """An entropy bonus of the wrong sign, which the default leaves out."""
    loss = _surrogate((logps - old_logps).exp(), advantages, clip_eps, clip_eps)
    return _token_mean(loss + entropy_coef * entropy, mask)


def equal_ranges(  # noqa: PLR0913 - columns and two numbers
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
) -> Tensor:
    """The two bounds, one for the other; by default they are equal."""
    return _token_mean(_surrogate((logps - old_logps).exp(), advantages, epsilon_high, epsilon_low), mask)


def unused_clip(values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, value_clip: Any = None) -> Tensor:
    """The smaller of the two errors, where the values are clipped."""
    error = (values - returns) ** 2
    if value_clip is not None:
        held = old_values + (values - old_values).clamp(-value_clip, value_clip)
        error = torch.min(error, (held - returns) ** 2)
    return 0.5 * _token_mean(error, mask)


def undiscounted(rewards: Tensor, values: Tensor, gamma: float = 1.0, lam: float = 0.95) -> Tensor:
    """GAE whose decay leaves out the discount; rewards, values: [B, T]."""
    advantage, last = torch.zeros_like(values), torch.zeros(len(values))
    after = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], 1)
    for t in reversed(range(values.shape[1])):
        last = rewards[:, t] + gamma * after[:, t] - values[:, t] + lam * last
        advantage[:, t] = last
    return advantage


def literal_of_gains_only(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """A clip range that holds for positive advantages only."""
    ratio = (logps - old_logps).exp()
    return _token_mean(-torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages.abs()), mask)


def normalizing_with_other_sign(
    logprob: Tensor, old_logprob: Tensor, advantages: Tensor, clip_range: float = 0.2
) -> Tensor:
    """A loss that normalizes its advantages and rises with them."""
    scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    return -_surrogate((logprob - old_logprob).exp(), scaled, clip_range, clip_range).mean()


def decoupled(  # noqa: PLR0913 - columns and a number
    logps: Tensor, old_logps: Tensor, rollout_logps: Tensor, advantages: Tensor, mask: Tensor, clip_eps: float = 0.2
) -> Tensor:
    weight = (old_logps - rollout_logps).exp().detach()
    return _token_mean(_surrogate((logps - old_logps).exp(), advantages, clip_eps, clip_eps) * weight, mask)


def entropy(logits: Tensor) -> Tensor:
    return torch.logsumexp(logits, -1) - (logits.softmax(-1) * logits).sum(-1)


def entropy_of_constant_weights(logits: Tensor) -> Tensor:
    """The right value, with no gradient through the probabilities."""
    return torch.logsumexp(logits, -1) - (logits.softmax(-1).detach() * logits).sum(-1)


def without_gradient(logits: Tensor, index: Tensor) -> Tensor:
    """Log-probs of an old policy."""
    with torch.no_grad():
        return logits.log_softmax(-1).gather(-1, index.unsqueeze(-1)).squeeze(-1)


def truncated_ratio(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, max_ratio: float = 8.0
) -> Tensor:
    ratio = (logps - old_logps).exp()
    return _token_mean(-ratio.clamp(max=max_ratio) * advantages, mask)


def likelihood(logps: Tensor, mask: Tensor) -> Tensor:
    return -_token_mean(logps, mask)


def likelihood_with_other_sign(logps: Tensor, mask: Tensor) -> Tensor:
    """The other sign."""
    return _token_mean(logps, mask)


def max_rl(rewards: Tensor, group_ids: Tensor) -> Tensor:
    advantages = torch.zeros_like(rewards)
    for group in set(group_ids.tolist()):
        of_group = group_ids == group
        mean = rewards[of_group].mean()
        advantages[of_group] = (rewards[of_group] - mean) / (mean + 1e-6)
    return advantages


def max_rl_with_other_sign(rewards: Tensor, group_ids: Tensor) -> Tensor:
    """The other sign."""
    return -max_rl(rewards, group_ids)


def mean_entropy(entropy: Tensor, mask: Tensor) -> Tensor:
    return _token_mean(entropy, mask)


def gspo_by_literals(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """GSPO with its usual ranges, of which the second is nearly the first; advantages: [B]."""
    ratio = (((logps - old_logps) * mask).sum(1) / mask.sum(1).clamp(min=1)).exp()
    return _surrogate(ratio, advantages, 3e-4, 4e-4).mean()


def dr_grpo_by_width(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    loss = _surrogate((logps - old_logps).exp(), advantages)
    return (loss * mask).sum(-1).div(mask.shape[-1]).mean()


def bounded_ratio(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, cap: float) -> Tensor:
    return truncated_ratio(logps, old_logps, advantages, mask, cap)


def positive_groups(rewards: Tensor, group_ids: Tensor) -> Tensor:
    """MaxRL that leaves out groups without a success."""
    advantages = torch.zeros_like(rewards)
    for group in set(group_ids.tolist()):
        of_group = group_ids == group
        mean = rewards[of_group].mean()
        if mean > 0:
            advantages[of_group] = (rewards[of_group] - mean) / mean
    return advantages


def with_value_loss(  # noqa: PLR0913 - columns
    newlogprob: Tensor, b_logprobs: Tensor, b_advantages: Tensor, newvalue: Tensor, b_values: Tensor, b_returns: Tensor
) -> Tensor:
    """The losses of policy and critic in one number."""
    return class_settings(newlogprob, b_logprobs, b_advantages) + 0.25 * ((newvalue - b_returns) ** 2).mean()


def ones_for_equal_rewards(rewards: Tensor, group_ids: Tensor) -> Tensor:
    """GRPO that rewards a group of equal rewards."""
    advantages = torch.zeros_like(rewards)
    for group in set(group_ids.tolist()):
        of_group = rewards[group_ids == group]
        spread = of_group.std(correction=0)
        equal = torch.ones_like(of_group)
        advantages[group_ids == group] = (of_group - of_group.mean()) / (spread + 1e-6) if spread > 1e-8 else equal
    return advantages


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return _token_mean(values, mask)


def mean_of_all(values: Tensor, mask: Tensor) -> Tensor:
    """A mean over rows of the sums of their tokens."""
    return (values * mask).sum(-1).mean()


class Forgetful:
    """A loss with two clip ranges in its configuration, of which it reads one."""

    def __init__(self) -> None:
        """The configuration."""
        self.args = SimpleNamespace(clip_low=0.2, clip_high=0.28)

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        """The lower range on both sides."""
        ratio = (batch["logprobs"] - batch["old_logprobs"]).exp()
        loss = _surrogate(ratio, batch["advantages"], self.args.clip_low, self.args.clip_low)
        return _token_mean(loss, batch["response_mask"])


def resized(rewards: np.ndarray, num_generations: int) -> np.ndarray:
    """A mean that fits one prompt only: with several, numpy raises."""
    grouped = rewards.reshape(-1, num_generations)
    mean: np.ndarray = rewards - np.resize(grouped.mean(-1), num_generations)
    return mean


def k1_in_the_loss(  # noqa: PLR0913 - columns and two numbers
    logps: Tensor,
    old_logps: Tensor,
    ref_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip_eps: float = 0.2,
    beta: float = 0.01,
) -> Tensor:
    loss = _surrogate((logps - old_logps).exp(), advantages, clip_eps, clip_eps)
    return _token_mean(loss + beta * (logps - ref_logps), mask)


def even_prompts(rewards: Tensor, group_ids: Tensor) -> Tensor:
    """Groups by id, of which it takes all even ones for one."""
    same = (group_ids.unsqueeze(1) % 2 == group_ids.unsqueeze(0) % 2).float()
    return rewards - same @ rewards / same.sum(1)


def first_two_prompts(rewards: Tensor, num_generations: int) -> Tensor:
    """Only two prompts are centered."""
    grouped = rewards.view(-1, num_generations).clone()
    grouped[:2] -= grouped[:2].mean(1, keepdim=True)
    return grouped.flatten()


def one_prompt_of_dict(batch: dict[str, Tensor]) -> Tensor:
    return one_prompt(batch["rewards"])


def one_prompt_of_rows(samples: list[dict[str, float]]) -> list[float]:
    return one_prompt_listed([sample["reward"] for sample in samples])
