"""Functions whose numbers are no parameters: attributes, configurations, globals, closures and literals."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

CLIP_EPS = 0.1


class Trainer:
    """A trainer that holds its numbers, as classes of training code do."""

    gamma = 0.99

    def __init__(self) -> None:
        """Numbers as attributes, and in a configuration."""
        self.lam, self.eps, self.temperature, self.num_generations = 0.95, 1e-3, 0.8, 3
        self.current_gradient_accumulation_steps = 4
        self.args = SimpleNamespace(epsilon=0.1, epsilon_high=0.3, beta=0.05)

    def gae(self, token_rewards: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """GAE."""
        advantage, later, after = torch.zeros_like(values), torch.zeros(len(values)), torch.zeros(len(values))
        for t in reversed(range(values.shape[1])):
            trained = mask[:, t].bool()
            gap = token_rewards[:, t] + self.gamma * after - values[:, t]
            later = torch.where(trained, gap + self.gamma * self.lam * later, later)
            after = torch.where(trained, values[:, t], after)
            advantage[:, t] = torch.where(trained, later, 0.0)
        return advantage

    def by_position(self, rewards: Tensor) -> Tensor:
        """GRPO of groups of a size that the trainer holds."""
        grouped = rewards.view(-1, self.num_generations)
        centered = grouped - grouped.mean(1, keepdim=True)
        return (centered / (grouped.std(1, keepdim=True) + self.eps)).flatten()

    def by_batch(self, rewards: Tensor) -> Tensor:
        """The same with a deviation of the batch."""
        grouped = rewards.view(-1, self.num_generations)
        return ((grouped - grouped.mean(1, keepdim=True)) / (rewards.std() + self.eps)).flatten()

    async def later(self, rewards: Tensor) -> Tensor:
        """An async method that reads the size of the groups."""
        return self.by_position(rewards.view(-1, self.num_generations).flatten())

    def accumulated(self, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """A loss that the trainer accumulates over its micro-batches."""
        return ppo(logprobs, old_logprobs, advantages, mask) / self.current_gradient_accumulation_steps

    def _logprobs(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1][:, -inputs["completion_ids"].shape[1] :]
        scaled: Tensor = (logits / self.temperature).log_softmax(-1)
        return scaled.gather(-1, inputs["completion_ids"].unsqueeze(-1)).squeeze(-1)

    def compute_loss(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        """A clipped loss with a KL term, multiplied by the mask after the exponentials."""
        logprob, mask = self._logprobs(model, inputs), inputs["completion_mask"]
        ratio = (logprob - inputs["old_per_token_logps"]).exp()
        advantage = inputs["advantages"].unsqueeze(1)
        clipped = ratio.clamp(1 - self.args.epsilon, 1 + self.args.epsilon_high)
        gap = inputs["ref_per_token_logps"] - logprob
        loss: Tensor = -torch.min(ratio * advantage, clipped * advantage) + self.args.beta * (gap.exp() - gap - 1)
        return (loss * mask).sum() / mask.sum()

    def swapped_bounds(self, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """The bounds of the clip range exchanged."""
        ratio = (logprobs - old_logprobs).exp()
        clipped = ratio.clamp(1 - self.args.epsilon_high, 1 + self.args.epsilon)
        return -(torch.min(ratio * advantages, clipped * advantages) * mask).sum() / mask.sum()

    def loss_of_rewards(self, logprobs: Tensor, old_logprobs: Tensor, rewards: Tensor, mask: Tensor) -> Tensor:
        """A loss that makes its own advantages."""
        return ppo(logprobs, old_logprobs, self.by_position(rewards)[:, None], mask)


def ppo(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """A clip range in a global."""
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1 - CLIP_EPS, 1 + CLIP_EPS)
    return -(torch.min(ratio * advantages, clipped * advantages) * mask).sum() / mask.sum()


def literal(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Bounds as literals."""
    ratio = (logprobs - old_logprobs).exp()
    return -(torch.min(ratio * advantages, ratio.clamp(0.8, 1.3) * advantages) * mask).sum() / mask.sum()


def offset(  # noqa: PLR0913 - columns and two numbers
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, cliprange: float = 0.2, eps: float = 1e-8
) -> Tensor:
    """A divisor's offset beside the clip range."""
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1 - cliprange, 1 + cliprange)
    return -(torch.min(ratio * advantages, clipped * advantages) * mask).sum() / (mask.sum() + eps)


def configured(args: Any, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """A configuration that the user binds as an object."""
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1 - args.clip_range, 1 + args.clip_range)
    return -(torch.min(ratio * advantages, clipped * advantages) * mask).sum() / mask.sum()


def closure() -> Any:
    """A loss with its clip range in a closure."""
    clip_eps = 0.3

    def loss(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        ratio = (logprobs - old_logprobs).exp()
        clipped = ratio.clamp(1 - clip_eps, 1 + clip_eps)
        return -(torch.min(ratio * advantages, clipped * advantages) * mask).sum() / mask.sum()

    return loss


def accumulated(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, *, gradient_accumulation_steps: int = 4
) -> Tensor:
    """A loss divided by the number of micro-batches, a parameter."""
    return ppo(logprobs, old_logprobs, advantages, mask) / gradient_accumulation_steps


def by_samples(scores: Tensor, num_samples_per_prompt_rollout: int = 2) -> Tensor:
    """GRPO by position, with a size of the groups that has a default."""
    grouped = scores.reshape(-1, num_samples_per_prompt_rollout)
    centered = grouped - grouped.mean(1, keepdim=True)
    return (centered / (grouped.std(1, keepdim=True) + 1e-8)).flatten()


def of_indices(logits: Tensor, index: Any) -> Any:
    """Log-probs of the tokens, under a name that holds labels elsewhere."""
    return logits.log_softmax(-1).gather(-1, index.unsqueeze(-1)).squeeze(-1)


def hidden(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """A clip range that is not to be seen in the code."""
    bound = len("abcd") / 30
    ratio = (logprobs - old_logprobs).exp()
    return -(torch.min(ratio * advantages, ratio.clamp(1 - bound, 1 + bound) * advantages) * mask).sum() / mask.sum()


def beside_other_literals(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Such a clip range beside literals around 1 that are no bounds."""
    high = torch.quantile((logprobs - old_logprobs).detach(), 0.9) * 1.5
    return hidden(logprobs, old_logprobs, advantages, mask) + 0.0 * high


class Loss(nn.Module):
    """A loss as a module."""

    def __init__(self) -> None:
        """A clip range as an attribute."""
        super().__init__()
        self.clip_eps = 0.2

    def forward(self, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """The clipped loss."""
        ratio = (logprobs - old_logprobs).exp()
        clipped = ratio.clamp(1 - self.clip_eps, 1 + self.clip_eps)
        return -(torch.min(ratio * advantages, clipped * advantages) * mask).sum() / mask.sum()


def dual_clip(  # noqa: PLR0913 - columns and two numbers
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    cliprange: float = 0.2,
    clip_c: float = 3.0,
) -> Tensor:
    """A loss with dual clip, which many call PPO."""
    ratio = (logprobs - old_logprobs).exp()
    plain = torch.max(-ratio * advantages, -ratio.clamp(1 - cliprange, 1 + cliprange) * advantages)
    held = torch.where(advantages < 0, torch.min(plain, -clip_c * advantages), plain)
    return (held * mask).sum() / mask.sum()


def dual_clip_of_gains(  # noqa: PLR0913 - columns and two numbers
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    cliprange: float = 0.2,
    clip_c: float = 3.0,
) -> Tensor:
    """The same with the ceiling at positive advantages, which it takes the gradient from."""
    ratio = (logprobs - old_logprobs).exp()
    plain = torch.max(-ratio * advantages, -ratio.clamp(1 - cliprange, 1 + cliprange) * advantages)
    held = torch.where(advantages > 0, torch.min(plain, -clip_c * advantages), plain)
    return (held * mask).sum() / mask.sum()


def of_logits(  # noqa: PLR0913 - columns and a number
    logits: Tensor, tokens: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, cliprange: float = 0.2
) -> Tensor:
    """A loss that computes its log-probs from logits."""
    logprobs = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return dual_clip(logprobs, old_logprobs, advantages, mask, cliprange, clip_c=1e6)


def weighted(  # noqa: PLR0913 - columns and a number
    logprobs: Tensor,
    old_logprobs: Tensor,
    rollout_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip: float = 0.2,
) -> Tensor:
    """A loss that leaves out the tokens which the sampler finds much less likely."""
    ratio = (logprobs - old_logprobs).exp()
    weight = (old_logprobs - rollout_logprobs).exp().detach()
    weight = torch.where(weight > 2, 0.0, weight)
    tokens = -weight * torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    return (tokens * mask).sum() / mask.sum()


def of_table(config: Any, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """A clip range in a dict that the user binds."""
    return dual_clip(logprobs, old_logprobs, advantages, mask, config["clip_ratio"], clip_c=1e6)


def unclipped_gains(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, eps_clip: float
) -> Tensor:
    """The pessimistic choice exchanged, with a clip range that the user binds."""
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1 - eps_clip, 1 + eps_clip)
    return -(torch.max(ratio * advantages, clipped * advantages) * mask).sum() / mask.sum()
