"""The library's side of each comparison, and the least memory that the part must move."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from benchmarks.tensors import Inputs, gradient
from rl_sentinel.signal.advantage import gae, grpo, passk, reinforce_plus_plus_baseline, rloo
from rl_sentinel.signal.correction import bounds, rejection, trust, weights
from rl_sentinel.signal.logprob import logprobs, logprobs_and_entropy
from rl_sentinel.signal.loss import ppo
from rl_sentinel.signal.reduce import Aggregation, live_rows

#: Settings that both sides are given.
EPSILON, CLIP, DISCOUNT, DECAY, HIGHEST, THRESHOLD, LOW, HIGH = 1e-6, 0.2, 1.0, 0.95, 2.0, 0.01, -0.5, 0.5


def _groups(x: Inputs) -> dict[str, Tensor]:
    return {"group": x.group, "live": live_rows(x.mask)}


def grpo_of_rows(x: Inputs) -> Tensor:
    """From one reward per response, as TRL has it."""
    live = torch.ones_like(x.reward, dtype=torch.bool)
    return grpo.advantages(x.reward, group=x.group, live=live, standardize=True, epsilon=1e-4)


def grpo_of_mask(x: Inputs) -> Tensor:
    """From one reward per response and a mask; peers start from token rewards and end with token advantages."""
    return grpo.advantages(x.reward, **_groups(x), standardize=True, epsilon=EPSILON)


def rloo_of_mask(x: Inputs) -> Tensor:
    """As GRPO."""
    return rloo.advantages(x.reward, **_groups(x))


def passk_of_mask(x: Inputs) -> Tensor:
    """As GRPO."""
    return passk.advantages(x.reward, **_groups(x))


def baseline_of_mask(x: Inputs) -> Tensor:
    """As GRPO."""
    return reinforce_plus_plus_baseline.advantages(x.reward, **_groups(x), epsilon=1e-8)


def gae_of_tokens(x: Inputs) -> Tensor:
    """With the mask."""
    return gae.advantages(x.token_reward, x.value, mask=x.mask, discount=DISCOUNT, decay=DECAY)


def ppo_step(x: Inputs) -> Tensor:
    """Loss and gradient; the advantage is one number per row until here."""
    leaf = x.logprob.clone().requires_grad_()
    whole = Aggregation("token-mean", float(x.tokens))
    loss = ppo.loss(leaf, x.old_logprob, x.wide, mask=x.mask, clip_low=CLIP, clip_high=CLIP, aggregation=whole)
    return gradient(loss, leaf)


def correct(x: Inputs) -> tuple[Tensor, Tensor]:
    """Truncated token weights, and the rows that the mean log-ratio keeps."""
    weight = weights.token_weights(x.old_logprob, x.rollout_logprob, mask=x.mask)
    keep = rejection.rows_kept(
        x.old_logprob, x.rollout_logprob, mask=x.mask, estimator="k1", over="mean", low=LOW, high=HIGH
    )
    return bounds.truncated(weight, mask=x.mask, high=HIGHEST), keep


def opsm(x: Inputs) -> Tensor:
    """One decision per response."""
    return trust.off_policy_sequences_kept(x.logprob, x.rollout_logprob, x.advantage, mask=x.mask, threshold=THRESHOLD)


def score(logits: Tensor, token: Tensor) -> Tensor:
    """Log-probs and their gradient."""
    leaf = logits.detach().requires_grad_()
    return gradient(logprobs(leaf, token, mask=torch.ones_like(token, dtype=torch.bool), temperature=1.0).sum(), leaf)


def score_with_entropy(logits: Tensor, token: Tensor) -> Tensor:
    """Log-probs, entropy, and the gradient of both."""
    leaf = logits.detach().requires_grad_()
    mask = torch.ones_like(token, dtype=torch.bool)
    first, second = logprobs_and_entropy(leaf, token, mask=mask, temperature=1.0)
    return gradient((first.sum() - 0.01 * second.sum()), leaf)


#: Part -> what computes it here, and bytes that must move per trained token (0 where rows are all there is).
PARTS: Mapping[str, tuple[Callable[..., Any], int]] = {
    "GRPO, rewards [B]": (grpo_of_rows, 0),
    "GRPO": (grpo_of_mask, 1),
    "RLOO": (rloo_of_mask, 1),
    "Pass@k": (passk_of_mask, 1),
    "REINFORCE++ baseline": (baseline_of_mask, 1),
    "GAE": (gae_of_tokens, 13),
    "PPO loss and gradient": (ppo_step, 13),
    "rollout correction": (correct, 13),
    "OPSM": (opsm, 9),
    "log-probs and gradient": (score, 8),
    "log-probs, entropy and gradient": (score_with_entropy, 8),
}
