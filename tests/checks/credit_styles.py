"""Correct RLOO, GAE, REINFORCE++ and ReMax, after public styles."""

from typing import Any

import torch

STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "rloo loo loop": (
        """
def f(scores, group):
    out = torch.zeros_like(scores)
    for i in range(scores.numel()):
        others = (group == group[i])
        others[i] = False
        out[i] = scores[i] - scores[others].mean() if others.any() else 0.0
    return out
""",
        {"stage": "advantage", "algorithm": "rloo"},
    ),
    "rloo K first": (
        """
def f(rlhf_reward, rloo_k):
    r = rlhf_reward.reshape(-1, rloo_k).T
    base = (r.sum(0) - r) / (rloo_k - 1)
    return (r - base).T.flatten()
""",
        {"bind": {"rlhf_reward": "reward", "rloo_k": "num_generations"}, "stage": "advantage", "algorithm": "rloo"},
    ),
    "rloo scatter index_add": (
        """
def f(sequence_rewards, group_index, response_mask):
    n = int(group_index.max()) + 1
    total = torch.zeros(n).index_add(0, group_index, sequence_rewards)
    count = torch.zeros(n).index_add(0, group_index, torch.ones_like(sequence_rewards))
    k = count[group_index]
    adv = torch.where(k > 1, (k * sequence_rewards - total[group_index]) / (k - 1).clamp(min=1), torch.zeros_like(k))
    return adv.unsqueeze(-1) * response_mask.to(adv.dtype)
""",
        {"stage": "advantage", "algorithm": "rloo"},
    ),
    "rloo numpy list": (
        """
import numpy as np
def f(rewards: list[float], group_size: int):
    x = np.asarray(rewards, dtype=np.float32).reshape(-1, group_size)
    loo = (x.sum(1, keepdims=True) - x) / (group_size - 1)
    return (x - loo).reshape(-1).tolist()
""",
        {"stage": "advantage", "algorithm": "rloo"},
    ),
    "gae scan flip": (
        '''
def f(rewards, values, mask, gamma: float = 0.99, lam: float = 0.95):
    """rewards, values, mask: (B, T)"""
    m = mask.to(rewards.dtype)
    v = values * m
    v_next = torch.nn.functional.pad(v[:, 1:], (0, 1))
    delta = (rewards + gamma * v_next - v) * m
    acc = torch.zeros(rewards.size(0))
    adv = torch.zeros_like(rewards)
    for t in reversed(range(rewards.size(1))):
        acc = delta[:, t] + gamma * lam * acc
        adv[:, t] = acc
    return adv * m
''',
        {"stage": "advantage", "algorithm": "gae"},
    ),
    "gae matrix": (
        """
def f(token_rewards, values, mask, gamma, lam):
    T = token_rewards.shape[1]
    v = values * mask
    nxt = torch.cat([v[:, 1:], torch.zeros_like(v[:, :1])], dim=1)
    delta = (token_rewards * mask) + gamma * nxt - v
    i = torch.arange(T)
    power = (i[None, :] - i[:, None])
    w = torch.where(power >= 0, (gamma * lam) ** power.clamp(min=0).float(), 0.0)
    return (delta @ w.T) * mask
""",
        {"stage": "advantage", "algorithm": "gae"},
    ),
    "gae openrlhf method": (
        """
class Maker:
    def __init__(self):
        self.gamma, self.lambd = 1.0, 0.95
    def get_advantages_and_returns(self, values, rewards, action_mask):
        lastgaelam = 0
        rev = []
        length = rewards.size(1)
        values = action_mask * values
        rewards = action_mask * rewards
        for t in reversed(range(length)):
            nextvalues = values[:, t + 1] if t < length - 1 else 0.0
            delta = rewards[:, t] + self.gamma * nextvalues - values[:, t]
            lastgaelam = delta + self.gamma * self.lambd * lastgaelam
            rev.append(lastgaelam)
        advantages = torch.stack(rev[::-1], dim=1)
        returns = advantages + values
        return advantages.detach(), returns
f = Maker().get_advantages_and_returns
""",
        {"stage": "advantage", "algorithm": "gae"},
    ),
    "gae time-major": (
        """
def f(rewards, values, gamma=0.99, gae_lambda=0.95):
    r, v = rewards.T, values.T
    adv = torch.zeros_like(r)
    run = torch.zeros(r.shape[1])
    for t in range(len(r) - 1, -1, -1):
        boot = v[t + 1] if t + 1 < len(r) else torch.zeros_like(run)
        run = r[t] + gamma * boot - v[t] + gamma * gae_lambda * run
        adv[t] = run
    return adv.T, (adv + v).T
""",
        {"stage": "advantage", "algorithm": "gae"},
    ),
    "gae per-row list": (
        """
def f(rewards: list[torch.Tensor], values: list[torch.Tensor], gamma=1.0, lam=0.9):
    res = []
    for r, v in zip(rewards, values):
        a, prev, out = 0.0, 0.0, []
        for t in reversed(range(len(r))):
            a = (r[t] + gamma * prev - v[t]) + gamma * lam * a
            prev = v[t]
            out.append(a)
        res.append(torch.stack(out[::-1]) if out else torch.zeros(0))
    return res
""",
        {"stage": "advantage", "algorithm": "gae"},
    ),
    "gae whiten masked": (
        """
def masked_mean(x, m): return (x * m).sum() / m.sum()
def masked_whiten(x, m):
    mu = masked_mean(x, m)
    var = masked_mean((x - mu) ** 2, m)
    n = m.sum()
    var = var * n / (n - 1)
    return (x - mu) * torch.rsqrt(var + 1e-8)
def f(token_level_rewards, values, response_mask, gamma=1.0, lam=1.0):
    m = response_mask.float()
    with torch.no_grad():
        nv, g, out = 0.0, 0.0, []
        for t in reversed(range(m.shape[-1])):
            d = token_level_rewards[:, t] + gamma * nv - values[:, t]
            g_ = d + gamma * lam * g
            nv = values[:, t] * m[:, t] + (1 - m[:, t]) * nv
            g = g_ * m[:, t] + (1 - m[:, t]) * g
            out.append(g)
        adv = torch.stack(out[::-1], 1)
        ret = adv + values
        adv = masked_whiten(adv, m) * m
    return adv, ret
""",
        {"stage": "advantage", "algorithm": "gae"},
    ),
    "reinforce++ cumsum": (
        """
def f(token_level_rewards, response_mask):
    m = response_mask.float()
    g = (token_level_rewards * m).flip(1).cumsum(1).flip(1) * m
    n = m.sum().clamp(min=1)
    mu = g.sum() / n
    sd = (((g - mu) ** 2 * m).sum() / n).sqrt()
    return (g - mu) / (sd + 1e-8) * m
""",
        {"stage": "advantage", "algorithm": "reinforce++"},
    ),
    "reinforce++ baseline": (
        """
def f(rewards, group, mask):
    a = rewards.clone()
    for g in group.unique():
        a[group == g] -= rewards[group == g].mean()
    tok = a[:, None].expand(mask.shape)[mask]
    mu, sd = tok.mean(), tok.std(unbiased=False)
    return torch.where(mask, (a[:, None] - mu) / (sd + 1e-8), torch.zeros(()))
""",
        {"stage": "advantage", "algorithm": "reinforce++-baseline"},
    ),
    "rows: attributes": (
        """
def f(samples, gamma=1.0, lam=0.95):
    outs = []
    for smp in samples:
        r, v = smp.token_rewards, smp.values
        nxt = torch.cat([v[1:], v.new_zeros(1)])
        d = r + gamma * nxt - v
        a, acc = torch.zeros_like(d), 0.0
        for t in range(len(d) - 1, -1, -1):
            acc = d[t] + gamma * lam * acc
            a[t] = acc
        outs.append(a)
    return outs
""",
        {"stage": "advantage", "algorithm": "gae"},
    ),
    "numpy gae lists": (
        """
import numpy as np
def f(rewards: np.ndarray, values: np.ndarray, mask: np.ndarray, gamma: float = 1.0, lam: float = 0.95):
    m = mask.astype(np.float32)
    r, v = rewards * m, values * m
    T = r.shape[1]
    adv = np.zeros_like(r)
    acc = np.zeros(len(r), dtype=r.dtype)
    for t in range(T)[::-1]:
        nv = v[:, t + 1] if t + 1 < T else 0.0
        acc = r[:, t] + gamma * nv - v[:, t] + gamma * lam * acc
        adv[:, t] = acc
    return adv * m
""",
        {"stage": "advantage", "algorithm": "gae"},
    ),
    "gae cleanrl dones": (
        '''
def f(rewards, values, dones, gamma=0.99, gae_lambda=0.95):
    """rewards: (B, T); values: (B, T); dones: (B, T)"""
    adv = torch.zeros_like(rewards)
    last = torch.zeros(rewards.shape[0])
    T = rewards.shape[1]
    for t in reversed(range(T)):
        nonterminal = 1.0 - dones[:, t]
        nextv = values[:, t + 1] if t + 1 < T else torch.zeros_like(last)
        delta = rewards[:, t] + gamma * nextv * nonterminal - values[:, t]
        last = delta + gamma * gae_lambda * nonterminal * last
        adv[:, t] = last
    return adv, adv + values
''',
        {
            "stage": "advantage",
            "algorithm": "gae",
            "bind": {"dones": lambda batch: (torch.arange(1, batch.width + 1) == batch.length[:, None]).float()},
        },
    ),
    "gae returns first dict": (
        """
def f(token_level_rewards, values, response_mask, gamma=1.0, lam=1.0):
    v = values * response_mask
    nxt = torch.roll(v, -1, 1)
    nxt[:, -1] = 0
    d = token_level_rewards + gamma * nxt - v
    out = torch.zeros_like(d)
    run = 0
    for t in reversed(range(d.size(1))):
        run = d[:, t] + gamma * lam * run
        out[:, t] = run
    return {"returns": out + values, "advantages": out * response_mask}
""",
        {"stage": "advantage", "algorithm": "gae"},
    ),
    "rloo numpy groups dict": (
        """
import numpy as np
from collections import defaultdict
def f(token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray):
    s = token_level_rewards.sum(-1)
    pos = defaultdict(list)
    for i, u in enumerate(index):
        pos[u].append(i)
    a = torch.zeros_like(s)
    for idx in pos.values():
        n = len(idx)
        if n == 1:
            continue
        tot = s[idx].sum()
        for i in idx:
            a[i] = s[i] * n / (n - 1) - tot / (n - 1)
    return a[:, None] * response_mask, a[:, None] * response_mask
""",
        {"stage": "advantage", "algorithm": "rloo"},
    ),
    "rloo cumsum einsum": (
        """
def f(rewards: torch.Tensor, num_samples: int):
    R = rewards.reshape(-1, num_samples)
    W = (1 - torch.eye(num_samples)) / (num_samples - 1)
    return (R - torch.einsum("gj,kj->gk", R, W)).reshape(-1)
""",
        {"stage": "advantage", "algorithm": "rloo"},
    ),
    "reinforce++ openrlhf": (
        """
class E:
    gamma = 1.0
    def get_cumulative_returns(self, rewards, action_mask):
        rewards = action_mask * rewards
        R = torch.zeros_like(rewards)
        c = torch.zeros(rewards.size(0))
        for t in reversed(range(rewards.size(1))):
            c = rewards[:, t] + self.gamma * c
            R[:, t] = c
        n = action_mask.sum()
        mean = (R * action_mask).sum() / n
        std = ((R - mean).pow(2) * action_mask).sum().div(n).clamp(min=1e-8).rsqrt()
        return (R - mean) * std * action_mask
f = E().get_cumulative_returns
""",
        {"stage": "advantage", "algorithm": "REINFORCE++"},
    ),
    "remax": (
        """
def f(token_level_rewards, reward_baselines, response_mask):
    a = token_level_rewards.sum(-1) - reward_baselines
    return a.unsqueeze(-1) * response_mask
""",
        {"stage": "advantage", "algorithm": "remax"},
    ),
    "no grad method": (
        """
class T:
    gamma, lam = 1.0, 0.95
    @torch.no_grad()
    def compute(self, rewards, values, action_mask):
        v = values * action_mask
        out, acc, nxt = [], 0.0, 0.0
        for t in reversed(range(rewards.shape[1])):
            acc = rewards[:, t] * action_mask[:, t] + self.gamma * nxt - v[:, t] + self.gamma * self.lam * acc
            nxt = v[:, t]
            out.append(acc)
        return torch.stack(out[::-1], 1) * action_mask
f = T().compute
""",
        {"stage": "advantage", "algorithm": "gae"},
    ),
    "reinforce++ over rows": (
        """
def f(rewards, mask):
    return ((rewards - rewards.mean()) / (rewards.std() + 1e-8))[:, None] * mask
""",
        {"stage": "advantage", "algorithm": "reinforce++"},
    ),
    "reinforce++ over rows, without a mask": (
        """
def f(rewards):
    centered = rewards - rewards.mean()
    return centered / (centered.pow(2).mean() + 1e-8).sqrt()
""",
        {"stage": "advantage", "algorithm": "reinforce++"},
    ),
}
