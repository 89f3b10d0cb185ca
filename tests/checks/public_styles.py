"""Correct implementations in the styles of public code, in our own words: their sources and how they are checked."""

import sys
from types import ModuleType
from typing import Any

import torch

_ADV = {"stage": "advantage"}
_GRPO: dict[str, Any] = {"stage": "advantage", "algorithm": "grpo"}
_RLOO: dict[str, Any] = {"stage": "advantage", "algorithm": "rloo"}
_PPO: dict[str, Any] = {"stage": "policy-loss", "algorithm": "ppo"}
_GAE: dict[str, Any] = {"stage": "advantage", "algorithm": "gae"}

#: The only contested law: untrained responses stay in the mean.
CONTESTED = {"MSK001"}

STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo by reshape": (
        """
def f(rewards, num_generations):
    grouped = rewards.view(-1, num_generations)
    mean = grouped.mean(dim=1).repeat_interleave(num_generations)
    std = grouped.std(dim=1).repeat_interleave(num_generations)
    return (rewards - mean) / (std + 1e-4)
""",
        _GRPO,
    ),
    "grpo by dict of uids": (
        """
from collections import defaultdict

def f(token_level_rewards, response_mask, index, epsilon=1e-6):
    scores, by_id = token_level_rewards.sum(-1), defaultdict(list)
    for i, uid in enumerate(index):
        by_id[uid].append(i)
    out = torch.zeros_like(scores)
    for rows in by_id.values():
        part = scores[rows]
        out[rows] = (part - part.mean()) / (part.std() + epsilon) if len(rows) > 1 else part * 0
    return out.unsqueeze(-1) * response_mask
""",
        _GRPO,
    ),
    "grpo by matrix": (
        """
def f(rewards, group_ids):
    same = (group_ids[:, None] == group_ids[None]).float()
    n = same.sum(1)
    mean = (same @ rewards) / n
    var = (same @ rewards.square()) / n - mean.square()
    return (rewards - mean) / torch.sqrt(var.clamp(min=0) + 1e-4)
""",
        _GRPO,
    ),
    "grpo by scatter": (
        """
def f(rewards, groups):
    _, inverse = groups.unique(return_inverse=True)
    count = torch.zeros(int(inverse.max()) + 1).scatter_add_(0, inverse, torch.ones_like(rewards))
    total = torch.zeros_like(count).scatter_add_(0, inverse, rewards)
    centered = rewards - (total / count)[inverse]
    var = torch.zeros_like(count).scatter_add_(0, inverse, centered ** 2) / count
    return centered / (var.sqrt()[inverse] + 1e-6)
""",
        _GRPO,
    ),
    "grpo on lists": (
        """
def f(rewards: list[float], uids):
    out = []
    for r, u in zip(rewards, uids):
        mates = [x for x, v in zip(rewards, uids) if v == u]
        mean = sum(mates) / len(mates)
        std = (sum((x - mean) ** 2 for x in mates) / len(mates)) ** 0.5
        out.append((r - mean) / (std + 1e-4))
    return out
""",
        _GRPO,
    ),
    "grpo [G, K]": (
        """
def f(rewards: "G K"):
    return (rewards - rewards.mean(-1, keepdim=True)) / (rewards.std(-1, keepdim=True, unbiased=False) + 1e-4)
""",
        _GRPO,
    ),
    "dr. grpo": (
        """
def f(rewards: "G K"):
    return rewards - rewards.mean(1, keepdim=True)
""",
        {"stage": "advantage", "algorithm": "dr_grpo"},
    ),
    "dr. grpo by ids": (
        """
def f(scores, prompt_ids):
    out = scores.clone()
    for p in prompt_ids.unique():
        out[prompt_ids == p] -= scores[prompt_ids == p].mean()
    return out
""",
        {"stage": "advantage", "algorithm": "dr_grpo", "bind": {"prompt_ids": "group"}},
    ),
    "rloo by reshape": (
        """
def f(rewards, group_size):
    r = rewards.reshape(-1, group_size)
    baseline = (r.sum(1, keepdim=True) - r) / (group_size - 1)
    return (r - baseline).flatten()
""",
        _RLOO,
    ),
    "rloo by factor": (
        """
def f(rewards: "G K"):
    k = rewards.shape[1]
    return (rewards - rewards.mean(1, keepdim=True)) * k / (k - 1)
""",
        _RLOO,
    ),
    "rloo by ids": (
        """
def f(rewards, mask, group):
    same = (group[:, None] == group[None, :]).float()
    n = same.sum(1)
    adv = torch.where(n > 1, rewards - (same @ rewards - rewards) / (n - 1).clamp(min=1), 0.0)
    return adv[:, None] * mask
""",
        _RLOO,
    ),
    "gae reversed loop": (
        """
def f(rewards, values, response_mask, gamma=0.99, lam=0.95):
    last, out = 0.0, []
    for t in reversed(range(rewards.shape[1])):
        after = values[:, t + 1] * response_mask[:, t + 1] if t + 1 < rewards.shape[1] else 0.0
        delta = rewards[:, t] + gamma * after - values[:, t] * response_mask[:, t]
        last = delta + gamma * lam * last
        out.append(last)
    return torch.stack(out[::-1], dim=1) * response_mask
""",
        _GAE,
    ),
    "gae and returns": (
        """
def f(token_level_rewards, values, mask, gamma, lam):
    nextvalue, lastgae, out = 0, 0, []
    for t in range(token_level_rewards.size(1) - 1, -1, -1):
        m = mask[:, t].float()
        delta = token_level_rewards[:, t] + gamma * nextvalue - values[:, t]
        gae = delta + gamma * lam * lastgae
        nextvalue = values[:, t] * m + (1 - m) * nextvalue
        lastgae = gae * m + (1 - m) * lastgae
        out.insert(0, gae)
    advantages = torch.stack(out, 1) * mask
    return advantages, advantages + values
""",
        _GAE,
    ),
    "gae whitened": (
        """
def f(token_rewards, values, mask, gamma=1.0, lam=0.95):
    v, last, out = values * mask, 0.0, []
    for t in reversed(range(token_rewards.shape[1])):
        after = v[:, t + 1] if t + 1 < v.shape[1] else 0.0
        last = token_rewards[:, t] + gamma * after - v[:, t] + gamma * lam * last
        out.append(last)
    adv = torch.stack(out[::-1], 1)
    n = mask.sum().clamp(min=1)
    mean = (adv * mask).sum() / n
    var = ((adv - mean) ** 2 * mask).sum() / n
    return (adv - mean) * torch.rsqrt(var + 1e-8) * mask
""",
        _GAE,
    ),
    "ppo token mean": (
        """
def f(log_prob, old_log_prob, advantages, response_mask, cliprange=0.2):
    ratio = torch.exp(log_prob - old_log_prob)
    one, two = -advantages * ratio, -advantages * torch.clamp(ratio, 1 - cliprange, 1 + cliprange)
    return (torch.max(one, two) * response_mask).sum() / response_mask.sum().clamp(min=1)
""",
        _PPO,
    ),
    "ppo two ranges": (
        """
def f(logprobs, old_logprobs, advantages, loss_mask, eps_clip=0.2, eps_clip_high=0.28):
    ratio = torch.where(loss_mask, logprobs - old_logprobs, 0).exp()
    surr = torch.min(ratio * advantages, ratio.clamp(1 - eps_clip, 1 + eps_clip_high) * advantages)
    return -torch.where(loss_mask, surr, 0).sum() / loss_mask.count_nonzero().clamp(min=1)
""",
        _PPO,
    ),
    "ppo sequence mean": (
        """
def f(log_probs, old_log_probs, advantages, action_mask, clip_eps):
    ratio = (log_probs - old_log_probs).exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages)
    return ((loss * action_mask).sum(-1) / action_mask.sum(-1).clamp(min=1)).mean()
""",
        _PPO,
    ),
    "grpo loss, advantages per row": (
        """
def f(per_token_logps, old_per_token_logps, ref_per_token_logps, advantages, completion_mask, epsilon=0.2, beta=0.04):
    coef = torch.exp(per_token_logps - old_per_token_logps)
    clipped = torch.clamp(coef, 1 - epsilon, 1 + epsilon)
    loss = -torch.min(coef * advantages.unsqueeze(1), clipped * advantages.unsqueeze(1))
    kl = torch.exp(ref_per_token_logps - per_token_logps) - (ref_per_token_logps - per_token_logps) - 1
    loss = loss + beta * kl
    return ((loss * completion_mask).sum(-1) / completion_mask.sum(-1).clamp(min=1.0)).mean()
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "dr. grpo loss": (
        """
def f(logps, old_logps, advantages: "B", mask, eps=0.2, max_completion_length=8):
    ratio = (logps - old_logps).exp()
    loss = -torch.min(ratio * advantages[:, None], ratio.clamp(1 - eps, 1 + eps) * advantages[:, None])
    return (loss * mask).sum() / (loss.shape[0] * max_completion_length)
""",
        {"stage": "policy-loss", "algorithm": "dr_grpo"},
    ),
    "dapo loss on a dict": (
        """
def f(batch, clip_low=0.2, clip_high=0.28):
    ratio = (batch["logprobs"] - batch["old_logprobs"]).exp()
    a, m = batch["advantages"], batch["mask"]
    loss = -torch.minimum(ratio * a, ratio.clamp(1 - clip_low, 1 + clip_high) * a)
    return (loss * m).sum() / m.sum().clamp_min(1)
""",
        {"stage": "policy-loss", "algorithm": "dapo"},
    ),
    "dual clip": (
        """
def f(log_prob, old_log_prob, advantages, mask, clip_ratio=0.2, clip_ratio_c=3.0):
    ratio = (log_prob - old_log_prob).exp()
    surr = torch.min(ratio * advantages, ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * advantages)
    surr = torch.where(advantages < 0, torch.max(surr, clip_ratio_c * advantages), surr)
    return -(surr * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "dual clip"},
    ),
    "cispo": (
        """
def f(logp, old_logp, advantages, mask, eps_low=0.5, eps_high=0.3):
    weight = (logp - old_logp).exp().clamp(1 - eps_low, 1 + eps_high).detach()
    return -(weight * advantages * logp * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "cispo"},
    ),
    "reinforce": (
        """
def f(logprobs, advantages, mask):
    return -(logprobs * advantages * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "reinforce"},
    ),
    "packed ppo": (
        """
def f(logp, old_logp, adv, mask, cu_seqlens, eps=0.2):
    ratio = (logp - old_logp).exp()
    loss = -torch.min(ratio * adv, ratio.clamp(1 - eps, 1 + eps) * adv) * mask
    rows = [(loss[a:b].sum() / mask[a:b].sum().clamp(min=1)) for a, b in zip(cu_seqlens[:-1], cu_seqlens[1:])]
    return torch.stack(rows).mean()
""",
        _PPO,
    ),
    "mean over rows without a floor": (
        """
def f(logp, old_logp, adv, action_mask, clip_eps=0.2):
    ratio = (logp - old_logp).exp()
    loss = -torch.min(ratio * adv, ratio.clamp(1 - clip_eps, 1 + clip_eps) * adv)
    return ((loss * action_mask).sum(-1) / action_mask.sum(-1)).mean()
""",
        _PPO,
    ),
    "trained tokens by index": (
        """
def f(logp, old_logp, adv, response_mask, eps=0.2):
    ratio = (logp - old_logp).exp()
    return -torch.min(ratio * adv, ratio.clamp(1 - eps, 1 + eps) * adv)[response_mask].mean()
""",
        _PPO,
    ),
    "grpo by id, deviation by n - 1": (
        """
def f(rewards, group_ids, response_mask):
    out = torch.zeros(response_mask.shape)
    for g in group_ids.unique():
        own = group_ids == g
        out[own] = ((rewards[own] - rewards[own].mean()) / (rewards[own].std() + 1e-6))[:, None]
    out[~response_mask] = 0
    return out
""",
        _GRPO,
    ),
    "rewards to go, whitened": (
        """
def f(token_level_rewards, response_mask, gamma=1.0):
    later, out = 0, torch.zeros_like(token_level_rewards)
    for t in reversed(range(out.shape[1])):
        m = response_mask[:, t]
        later = (token_level_rewards[:, t] + gamma * later) * m + later * ~m
        out[:, t] = later
    m = response_mask.float()
    mean = (out * m).sum() / m.sum()
    var = ((out - mean) ** 2 * m).sum() / m.sum()
    return (out - mean) * torch.rsqrt(var + 1e-8) * m
""",
        {"stage": "advantage", "algorithm": "reinforce++"},
    ),
    "gspo, an advantage per row, dead rows counted": (
        """
def f(logps, old_logps, advantages, completion_mask, epsilon_low=3e-4, epsilon_high=4e-4):
    "advantages: (B,), the others (B, T)"
    count = completion_mask.sum(-1, keepdim=True).clamp(min=1.0)
    ratio = (((logps - old_logps) * completion_mask).sum(-1, keepdim=True) / count).exp()
    advantage = advantages.unsqueeze(1)
    return -torch.min(ratio * advantage, ratio.clamp(1 - epsilon_low, 1 + epsilon_high) * advantage).mean()
""",
        {"stage": "policy-loss", "algorithm": "gspo"},
    ),
    "grpo in numpy": (
        """
import numpy as np

def f(rewards: np.ndarray, group_ids: np.ndarray) -> np.ndarray:
    out = np.zeros_like(rewards)
    for group in np.unique(group_ids):
        own = group_ids == group
        out[own] = (rewards[own] - rewards[own].mean()) / (rewards[own].std() + 1e-8)
    return out
""",
        _GRPO,
    ),
    "gae in numpy": (
        """
import numpy as np

def f(rewards: np.ndarray, values: np.ndarray, gamma=0.99, lam=0.95):
    rows, width = rewards.shape
    out, last, after = np.zeros_like(rewards), np.zeros(rows), np.zeros(rows)
    for t in range(width - 1, -1, -1):
        last = rewards[:, t] + gamma * after - values[:, t] + gamma * lam * last
        out[:, t], after = last, values[:, t]
    return out, out + values
""",
        _GAE,
    ),
    "grpo [G, K, T]": (
        """
def f(token_rewards):
    "token_rewards: [G, K, T]"
    outcome = token_rewards.sum(-1)
    advantage = (outcome - outcome.mean(1, keepdim=True)) / (outcome.std(1, keepdim=True) + 1e-6)
    return advantage[..., None].expand_as(token_rewards)
""",
        _GRPO,
    ),
    "ppo over whole rows, without a mask": (
        """
def f(newlogprob, b_logprobs, mb_advantages, clip_coef=0.2):
    ratio = (newlogprob - b_logprobs).exp()
    return torch.max(-mb_advantages * ratio, -mb_advantages * ratio.clamp(1 - clip_coef, 1 + clip_coef)).mean()
""",
        {
            **_PPO,
            "bind": {"newlogprob": "logprob", "b_logprobs": "old_logprob", "mb_advantages": "advantage"},
            "numbers": {"clip_low": 0.2, "clip_high": 0.2},
        },
    ),
    "value loss, clipped": (
        """
def f(vpreds, values, returns, mask, cliprange_value=0.5):
    held = values + (vpreds - values).clamp(-cliprange_value, cliprange_value)
    loss = torch.max((vpreds - returns) ** 2, (held - returns) ** 2)
    return 0.5 * (loss * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "value-loss", "algorithm": "clipped value"},
    ),
    "value loss, squared": (
        """
def f(values, returns, mask):
    return ((values - returns).pow(2) * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "value-loss", "algorithm": "squared value"},
    ),
    "k1": (
        "\ndef f(log_probs, log_probs_base):\n    return log_probs - log_probs_base\n",
        {"stage": "kl", "algorithm": "k1"},
    ),
    "k2": (
        "\ndef f(logp, ref_logp, mask):\n    return 0.5 * (logp - ref_logp) ** 2 * mask\n",
        {"stage": "kl", "algorithm": "k2"},
    ),
    "k3": (
        "\ndef f(logprob, ref_logprob):\n    d = ref_logprob - logprob\n    return torch.expm1(d) - d\n",
        {"stage": "kl", "algorithm": "k3"},
    ),
    "k3 cut": (
        """
def f(logprob, ref_logprob):
    kl = (ref_logprob - logprob).clamp(-20, 20)
    return (kl.exp() - kl - 1).clamp(-10, 10)
""",
        {"stage": "kl", "algorithm": "k3"},
    ),
}


def function(source: str) -> Any:
    """The function of a style, in a module of its own, as dataclasses with annotations as text need."""
    text = source if "__future__" in source else f"import torch\n{source}"
    module = ModuleType("public_style")
    sys.modules[module.__name__] = module
    if "__future__" in source:
        vars(module)["torch"] = torch
    exec(compile(text, __file__, "exec"), vars(module))  # noqa: S102 - the source is ours
    return vars(module)["f"]
