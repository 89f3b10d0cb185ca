"""Correct advantages of GRPO and Dr. GRPO, after public styles: what holds the function, and how groups are found."""

from typing import Any

STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo keyword only": (
        """
def f(*, rewards: torch.Tensor, group_ids: torch.Tensor, eps: float = 1e-4) -> torch.Tensor:
    ids, where = torch.unique(group_ids, return_inverse=True)
    one_hot = torch.nn.functional.one_hot(where, len(ids)).to(rewards.dtype)
    size = one_hot.sum(0)
    mu = (one_hot * rewards[:, None]).sum(0) / size
    second = (one_hot * (rewards[:, None] - mu) ** 2).sum(0) / size
    return (rewards - mu[where]) / (second.sqrt()[where] + eps)
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo partial": (
        """
from functools import partial

def _norm(rewards, prompt_ids, *, eps, unbiased):
    out = rewards.new_zeros(rewards.shape)
    for p in prompt_ids.unique().tolist():
        sel = (prompt_ids == p).nonzero(as_tuple=True)[0]
        x = rewards.index_select(0, sel)
        sd = x.std(unbiased=unbiased) if len(sel) > 1 else x.new_ones(())
        out.index_copy_(0, sel, (x - x.mean()) / (sd + eps))
    return out

f = partial(_norm, eps=1e-6, unbiased=True)
""",
        {"bind": {"prompt_ids": "group"}, "stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo trl view": (
        """
class Trainer:
    num_generations = 2
    scale = True

    def _advantages(self, rewards):
        mean = rewards.view(-1, self.num_generations).mean(dim=1)
        std = rewards.view(-1, self.num_generations).std(dim=1)
        mean = mean.repeat_interleave(self.num_generations, dim=0)
        std = std.repeat_interleave(self.num_generations, dim=0)
        adv = rewards - mean
        if self.scale:
            adv = adv / (std + 1e-4)
        return adv

f = Trainer()._advantages
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo vmap [G K]": (
        """
def _one(r):
    c = r - r.mean()
    return c / (c.pow(2).mean().sqrt() + 1e-6)

def f(reward_matrix: "G K"):
    return torch.vmap(_one)(reward_matrix)
""",
        {"bind": {"reward_matrix": "reward[G K]"}, "stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo async": (
        """
async def f(rewards, groups):
    out = []
    for i in range(len(rewards)):
        peers = rewards[groups == groups[i]]
        out.append((rewards[i] - peers.mean()) / (peers.std(unbiased=False) + 1e-6))
    return torch.stack(out)
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo callable class": (
        """
class GroupNorm:
    def __init__(self, eps=1e-6):
        self.eps = eps
    def __call__(self, rewards, group):
        n_groups = int(group.max()) + 1
        cnt = torch.bincount(group, minlength=n_groups).clamp(min=1)
        s1 = torch.bincount(group, weights=rewards, minlength=n_groups)
        mean = s1 / cnt
        s2 = torch.bincount(group, weights=(rewards - mean[group]) ** 2, minlength=n_groups)
        return (rewards - mean[group]) / ((s2 / cnt).sqrt()[group] + self.eps)
f = GroupNorm()
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo closure": (
        """
def make(eps):
    def compute(rewards, group):
        same = group.view(-1, 1).eq(group.view(1, -1))
        w = same / same.sum(1, keepdim=True)
        mu = w @ rewards
        var = (w * (rewards[None] - mu[:, None]) ** 2).sum(1)
        return (rewards - mu) / (var.sqrt() + eps)
    return compute
f = make(1e-8)
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo nn.Module": (
        """
class Adv(torch.nn.Module):
    def forward(self, rewards, num_generations: int):
        r = torch.stack(rewards.split(num_generations))
        a = (r - r.mean(1).unsqueeze(1)) / (r.std(1).unsqueeze(1) + 1e-4)
        return a.reshape(rewards.shape)
f = Adv()
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "dr grpo as grpo": (
        """
def f(scores, uid):
    scores = scores.clone()
    out = torch.zeros_like(scores)
    uid = list(uid)
    for u in dict.fromkeys(uid):
        idx = [i for i, x in enumerate(uid) if x == u]
        out[idx] = scores[idx] - scores[idx].mean()
    return out
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "kwargs batch": (
        """
def f(rewards, group, **kwargs):
    m = (group[:, None] == group[None]).double()
    mean = (m @ rewards.double()) / m.sum(1)
    sq = (m * (rewards.double()[None] - mean[:, None]) ** 2).sum(1) / m.sum(1)
    return ((rewards - mean) / (sq.sqrt() + 1e-6)).float()
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "lambda grpo": (
        """
rows = lambda x, k: (x.view(-1, k) - x.view(-1, k).mean(1, keepdim=True)) / (x.view(-1, k).std(1, keepdim=True) + 1e-4)
f = lambda rewards, num_generations: rows(rewards, num_generations).view(-1)
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "static method": (
        """
class A:
    @staticmethod
    def compute(rewards, group_ids):
        out = rewards.clone()
        for g in torch.unique(group_ids):
            i = group_ids == g
            out[i] = (rewards[i] - rewards[i].mean()) / (rewards[i].std(unbiased=False) + 1e-6)
        return out
f = A.compute
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "class method no_grad": (
        """
class A:
    eps = 1e-6
    @classmethod
    @torch.no_grad()
    def compute(cls, rewards, group_ids):
        out = rewards.clone()
        for g in torch.unique(group_ids):
            i = group_ids == g
            out[i] = (rewards[i] - rewards[i].mean()) / (rewards[i].std(unbiased=False) + cls.eps)
        return out
f = A.compute
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo keep live only": (
        """
def f(rewards, mask, group_ids):
    live = mask.any(1)
    adv = torch.zeros_like(rewards)
    for g in group_ids.unique():
        sel = (group_ids == g) & live
        if sel.sum() > 1:
            x = rewards[sel]
            adv[sel] = (x - x.mean()) / (x.std() + 1e-6)
    return adv[:, None] * mask
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "jaxtyped decorator": (
        """
from jaxtyping import Float, Int, jaxtyped
from torch import Tensor
@jaxtyped(typechecker=None)
def f(rewards: Float[Tensor, "b"], group: Int[Tensor, "b"]) -> Float[Tensor, "b"]:
    out = torch.zeros_like(rewards)
    for g in group.unique():
        i = group == g
        out[i] = rewards[i] - rewards[i].mean()
    return out
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "torch.compile disabled": (
        """
import functools
def deco(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*args, **kwargs)
    return inner
@deco
def f(rewards, group_ids):
    out = torch.zeros_like(rewards)
    for g in group_ids.unique():
        i = group_ids == g
        out[i] = rewards[i] - rewards[i].mean()
    return out
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "rewards multiplied by the mask": (
        """
def f(rewards, mask, group):
    own = rewards * mask.any(1)
    same = (group[:, None] == group[None]).float()
    mean = same @ own / same.sum(1)
    deviation = torch.stack([own[group == g].std() for g in group])
    return ((own - mean) / (deviation + 1e-6))[:, None] * mask
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "token rewards multiplied by the mask": (
        """
def f(token_level_rewards, response_mask, num_generations):
    scores = (token_level_rewards * response_mask).sum(-1).view(-1, num_generations)
    return (scores - scores.mean(1, keepdim=True)).flatten()[:, None] * response_mask
""",
        {"stage": "advantage", "algorithm": "dr_grpo"},
    ),
}
