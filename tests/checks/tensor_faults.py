"""Advantages, KL and loss of GRPO on tensors and lists, and faults of twelve classes in each layout."""

from checks.fault_matrix import Module

MODULES: dict[str, Module] = {
    "[B, T]": Module(
        """
import torch

def estimate(token_level_rewards, response_mask, uid, eps=1e-6):
    outcome = token_level_rewards.sum(dim=1)
    result = torch.zeros_like(token_level_rewards)
    for key in set(uid.tolist()):
        members = torch.tensor([u == key for u in uid.tolist()])
        mu = outcome[members].mean()
        sd = ((outcome[members] - mu) ** 2).mean() ** 0.5
        result[members] = ((outcome[members] - mu) / (sd + eps))[:, None] * response_mask[members]
    return result

def kl_tokens(logprobs, ref_logprobs, response_mask):
    diff = (ref_logprobs - logprobs) * response_mask
    return diff.exp() - diff - 1.0

def surrogate(logprobs, old_logprobs, advantages, response_mask, clip_range=0.2):
    r = (logprobs - old_logprobs).exp()
    raw = r * advantages
    cut = torch.clip(r, 1.0 - clip_range, 1.0 + clip_range) * advantages
    per_token = -torch.minimum(raw, cut) * response_mask
    return per_token.sum() / response_mask.sum().clamp(min=1)
""",
        {
            "estimate": {"stage": "advantage", "algorithm": "grpo"},
            "kl_tokens": {"stage": "kl", "algorithm": "k3"},
            "surrogate": {"stage": "policy-loss", "algorithm": "grpo"},
        },
        {
            "sign": ("surrogate", "-torch.minimum(", "torch.minimum("),
            "clip": ("surrogate", "torch.minimum(raw, cut)", "cut"),
            "stopped gradient": ("surrogate", "raw = r * adv", "raw = r.detach() * adv"),
            "denominator": ("surrogate", "response_mask.sum().clamp(min=1)", "response_mask.numel()"),
            "mask": (
                "surrogate",
                "per_token = -torch.minimum(raw, cut) * response_mask",
                "per_token = -torch.minimum(raw, cut)",
            ),
            "population of a statistic": ("estimate", "mu = outcome[members].mean()", "mu = outcome.mean()"),
            "order of KL and log": ("kl_tokens", "diff.exp() - diff - 1.0", "(diff.exp() - diff).log()"),
            "direction of a KL": ("kl_tokens", "ref_logprobs - logprobs", "logprobs - ref_logprobs"),
            "shift": ("surrogate", "(logprobs - old_logprobs)", "(logprobs - torch.roll(old_logprobs, -1, 1))"),
            "grouping": ("estimate", "u == key", "hash(u) % 2 == hash(key) % 2"),
            "aggregation": (
                "surrogate",
                "per_token.sum() / response_mask.sum().clamp(min=1)",
                "(per_token.sum(1) / response_mask.sum(1).clamp(min=1)).sum()",
            ),
            "deviation": (
                "estimate",
                "((outcome[members] - mu) ** 2).mean() ** 0.5",
                "(outcome[members] - mu).abs().mean()",
            ),
        },
    ),
    "[B]": Module(
        '''
import torch

def leave_scores(scores, prompt_ids):
    adv = torch.empty_like(scores)
    for p in torch.unique(prompt_ids):
        here = prompt_ids == p
        x = scores[here]
        adv[here] = (x - x.mean()) / (x.std(unbiased=False) + 1e-4)
    return adv

def penalty(logps, ref_logps, mask):
    d = ref_logps - logps
    return (torch.exp(d) - d - 1) * mask

def objective(logps, old_logps, advantages, mask, epsilon=0.2):
    """advantages: shape (B,), one number per response; logps, old_logps, mask: (B, T)"""
    weight = torch.exp(logps - old_logps)
    a = advantages.reshape(-1, 1)
    gain = torch.min(weight * a, weight.clamp(1 - epsilon, 1 + epsilon) * a)
    mean_of_row = (gain * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    return -mean_of_row.mean()
''',
        {
            "leave_scores": {"stage": "advantage", "algorithm": "grpo", "bind": {"prompt_ids": "group"}},
            "penalty": {"stage": "kl", "algorithm": "k3"},
            "objective": {"stage": "policy-loss", "algorithm": "grpo"},
        },
        {
            "sign": ("leave_scores", "x - x.mean()", "x.mean() - x"),
            "clip": ("objective", "weight.clamp(1 - epsilon, 1 + epsilon)", "weight.clamp(min=1 - epsilon)"),
            "stopped gradient": (
                "objective",
                "weight = torch.exp(logps - old_logps)",
                "weight = torch.exp(logps - old_logps).detach()",
            ),
            "denominator": ("objective", "mask.sum(-1).clamp(min=1)", "mask.shape[-1]"),
            "mask": ("objective", "(gain * mask)", "gain"),
            "population of a statistic": ("leave_scores", "x.std(unbiased=False)", "scores.std(unbiased=False)"),
            "order of KL and log": ("penalty", "torch.exp(d) - d - 1", "torch.exp(d) - torch.log1p(d.abs()) - 1"),
            "direction of a KL": ("penalty", "d = ref_logps - logps", "d = logps - ref_logps"),
            "shift": ("penalty", "d = ref_logps - logps", "d = ref_logps.roll(1, dims=1) - logps"),
            "grouping": ("leave_scores", "prompt_ids == p", "prompt_ids >= p"),
            "aggregation": ("objective", "-mean_of_row.mean()", "-mean_of_row.max()"),
            "deviation": ("leave_scores", "x.std(unbiased=False)", "x.var(unbiased=False)"),
        },
    ),
    "[G, K]": Module(
        """
import torch
from jaxtyping import Float, Bool
from torch import Tensor

def standardize(returns: Float[Tensor, "G K"]) -> Float[Tensor, "G K"]:
    m = returns.mean(-1, keepdim=True)
    s = returns.std(-1, keepdim=True)
    return (returns - m) / (s + 1e-8)

def kl3(logp: Float[Tensor, "G K T"], ref_logp: Float[Tensor, "G K T"]):
    delta = ref_logp - logp
    return torch.expm1(delta) - delta

def clipped(
    logp: Float[Tensor, "G K T"], old_logp: Float[Tensor, "G K T"], adv: Float[Tensor, "G K"],
    mask: Bool[Tensor, "G K T"], eps=0.2,
):
    rho = torch.exp(logp - old_logp)
    a = adv[..., None]
    loss = torch.max(-rho * a, -torch.clamp(rho, 1 - eps, 1 + eps) * a)
    return loss.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)
""",
        {
            "standardize": {"stage": "advantage", "algorithm": "grpo", "bind": {"returns": "reward[G K]"}},
            "kl3": {"stage": "kl", "algorithm": "k3"},
            "clipped": {"stage": "policy-loss", "algorithm": "grpo"},
        },
        {
            "sign": ("standardize", "returns - m)", "m - returns)"),
            "clip": ("clipped", "torch.max(", "torch.min("),
            "stopped gradient": ("clipped", "torch.max(-rho * a", "torch.max(-rho.detach() * a"),
            "denominator": ("clipped", "mask.sum().clamp(min=1)", "mask.numel()"),
            "mask": ("clipped", "loss.masked_fill(~mask, 0.0)", "loss"),
            "population of a statistic": ("standardize", "returns.mean(-1, keepdim=True)", "returns.mean()"),
            "order of KL and log": ("kl3", "torch.expm1(delta) - delta", "torch.expm1(delta) - delta.exp()"),
            "direction of a KL": ("kl3", "ref_logp - logp", "logp - ref_logp"),
            "shift": ("clipped", "logp - old_logp", "logp.roll(1, -1) - old_logp"),
            "grouping": ("standardize", "returns.std(-1, keepdim=True)", "returns.std(0, keepdim=True)"),
            "aggregation": (
                "clipped",
                "loss.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)",
                "loss.masked_fill(~mask, 0.0).sum((1, 2)).amax() / mask.sum().clamp(min=1)",
            ),
            "deviation": ("standardize", "s + 1e-8", "s * s + 1e-8"),
        },
    ),
    "ragged": Module(
        """
import torch

def advantages_of(rewards: list[float], groups: list[int], masks: list[torch.Tensor]):
    by = {}
    for r, g in zip(rewards, groups):
        by.setdefault(g, []).append(r)
    out = []
    for r, g, m in zip(rewards, groups, masks):
        mean = sum(by[g]) / len(by[g])
        var = sum((x - mean) ** 2 for x in by[g]) / len(by[g])
        out.append(m.float() * (r - mean) / (var ** 0.5 + 1e-6))
    return out

def kls(logp: list[torch.Tensor], ref_logp: list[torch.Tensor]):
    res = []
    for a, b in zip(logp, ref_logp):
        lr = b - a
        res.append(lr.exp() - 1 - lr)
    return res

def loss(
    logp: list[torch.Tensor], old_logp: list[torch.Tensor], advantages: list[torch.Tensor],
    masks: list[torch.Tensor], eps=0.2,
):
    total = torch.zeros(())
    n = 0
    for new, old, a, m in zip(logp, old_logp, advantages, masks):
        q = torch.exp(new - old)
        l = -torch.min(q * a, torch.clamp(q, 1 - eps, 1 + eps) * a)
        total = total + (l * m).sum()
        n = n + int(m.sum())
    return total / max(n, 1)
""",
        {
            "advantages_of": {"stage": "advantage", "algorithm": "grpo"},
            "kls": {"stage": "kl", "algorithm": "k3"},
            "loss": {"stage": "policy-loss", "algorithm": "grpo"},
        },
        {
            "sign": ("kls", "lr.exp() - 1 - lr", "lr - lr.exp() + 1"),
            "clip": ("loss", "torch.clamp(q, 1 - eps, 1 + eps)", "torch.clamp(q, max=1 + eps)"),
            "stopped gradient": ("loss", "torch.exp(new - old)", "torch.exp(new.detach() - old)"),
            "denominator": ("loss", "n = n + int(m.sum())", "n = n + len(m)"),
            "mask": ("loss", "(l * m).sum()", "l.sum()"),
            "population of a statistic": (
                "advantages_of",
                "sum((x - mean) ** 2 for x in by[g]) / len(by[g])",
                "sum((x - mean) ** 2 for x in rewards) / len(rewards)",
            ),
            "order of KL and log": ("kls", "lr.exp() - 1 - lr", "(1 + lr.exp()).log() - lr"),
            "direction of a KL": ("kls", "lr = b - a", "lr = a - b"),
            "shift": ("loss", "(new - old)", "(new - old.roll(1))"),
            "grouping": ("advantages_of", "by.setdefault(g, [])", "by.setdefault(g, by.get(0, []))"),
            "aggregation": ("loss", "total = total + (l * m).sum()", "total = torch.maximum(total, (l * m).sum())"),
            "deviation": ("advantages_of", "var ** 0.5 + 1e-6", "var + 1e-6"),
        },
    ),
    "packed": Module(
        '''
import torch

def packed_advantages(rewards, group_ids, loss_mask, cu_seqlens):
    """loss_mask: [N]; rewards: [B]; returns [N]"""
    pieces = []
    for i in range(len(rewards)):
        same = group_ids == group_ids[i]
        center = rewards[same].mean()
        width = (rewards[same] - center).pow(2).mean().sqrt()
        n = int(cu_seqlens[i + 1] - cu_seqlens[i])
        pieces.append(((rewards[i] - center) / (width + 1e-6)).expand(n))
    return torch.cat(pieces) * loss_mask

def packed_kl(logprobs, ref_logprobs, cu_seqlens):
    """logprobs: [N], ref_logprobs: [N]"""
    x = ref_logprobs - logprobs
    return x.exp() - x - 1

def packed_loss(logprobs, old_logprobs, advantages, loss_mask, cu_seqlens, eps_clip=0.2):
    ratio = torch.exp(logprobs - old_logprobs)
    l = -torch.min(ratio * advantages, ratio.clamp(1 - eps_clip, 1 + eps_clip) * advantages)
    l = l * loss_mask
    ends = zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist())
    per_row = [l[a:b].sum() / loss_mask[a:b].sum().clamp(min=1) for a, b in ends]
    return sum(per_row) / len(per_row)
''',
        {
            "packed_advantages": {"stage": "advantage", "algorithm": "grpo"},
            "packed_kl": {"stage": "kl", "algorithm": "k3"},
            "packed_loss": {"stage": "policy-loss", "algorithm": "grpo"},
        },
        {
            "sign": ("packed_loss", "l = -torch.min", "l = torch.min"),
            "clip": ("packed_loss", "ratio.clamp(1 - eps_clip, 1 + eps_clip)", "ratio"),
            "stopped gradient": (
                "packed_loss",
                "torch.exp(logprobs - old_logprobs)",
                "torch.exp(logprobs - old_logprobs).detach()",
            ),
            "denominator": ("packed_loss", "loss_mask[a:b].sum().clamp(min=1)", "(b - a)"),
            "mask": ("packed_loss", "l = l * loss_mask", "l = l * 1"),
            "population of a statistic": (
                "packed_advantages",
                "center = rewards[same].mean()",
                "center = rewards.mean()",
            ),
            "order of KL and log": ("packed_kl", "x.exp() - x - 1", "x.exp().log1p() - x"),
            "direction of a KL": ("packed_kl", "ref_logprobs - logprobs", "logprobs - ref_logprobs"),
            "shift": ("packed_loss", "l[a:b].sum()", "l[a + 1:b + 1].sum()"),
            "grouping": ("packed_advantages", "group_ids == group_ids[i]", "group_ids <= group_ids[i]"),
            "aggregation": ("packed_loss", "sum(per_row) / len(per_row)", "sum(per_row)"),
            "deviation": ("packed_advantages", ".pow(2).mean().sqrt()", ".pow(2).mean()"),
        },
    ),
}
