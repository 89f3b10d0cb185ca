"""Correct policy losses of PPO, after public styles."""

from typing import Any

STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo cleanrl continuous": (
        """
def f(newlogprob, oldlogprob, mb_advantages, clip_coef=0.2):
    logratio = newlogprob - oldlogprob
    ratio = logratio.exp()
    pg_loss1 = -mb_advantages * ratio
    pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
    return torch.max(pg_loss1, pg_loss2).mean()
""",
        {
            "bind": {
                "newlogprob": "logprob",
                "oldlogprob": "old_logprob",
                "mb_advantages": "advantage",
                "clip_coef": "clip_ratio",
            },
            "stage": "policy-loss",
            "algorithm": "ppo",
        },
    ),
    "ppo verl tuple": (
        """
def agg(mat, mask, mode):
    if mode == "token-mean":
        return (mat * mask).sum() / mask.sum().clamp(min=1)
    if mode == "seq-mean-token-mean":
        per = (mat * mask).sum(-1) / mask.sum(-1).clamp(min=1)
        return per.mean()
    raise ValueError(mode)

def f(
    old_log_prob, log_prob, advantages, response_mask,
    cliprange=None, cliprange_low=0.2, cliprange_high=0.28, loss_agg_mode="token-mean",
):
    neg = torch.clamp(log_prob - old_log_prob, -20.0, 20.0)
    ratio = torch.exp(neg)
    kl = (-neg * response_mask).sum() / response_mask.sum().clamp(min=1)
    l1 = -advantages * ratio
    l2 = -advantages * torch.clamp(ratio, 1 - cliprange_low, 1 + cliprange_high)
    frac = (torch.gt(l2, l1).float() * response_mask).sum() / response_mask.sum().clamp(min=1)
    return agg(torch.maximum(l1, l2), response_mask, loss_agg_mode), frac, kl
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "ppo openrlhf module": (
        """
class PolicyLoss(torch.nn.Module):
    def __init__(self, clip_eps_low=0.2, clip_eps_high=0.2):
        super().__init__()
        self.clip_eps_low, self.clip_eps_high = clip_eps_low, clip_eps_high
    def forward(self, log_probs, old_log_probs, advantages, action_mask=None):
        ratio = (log_probs - old_log_probs).exp()
        surr1 = ratio * advantages
        surr2 = ratio.clamp(1 - self.clip_eps_low, 1 + self.clip_eps_high) * advantages
        loss = -torch.min(surr1, surr2)
        if action_mask is None:
            return loss.mean()
        return (loss * action_mask).sum() / action_mask.sum()
f = PolicyLoss()
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "ppo keyword-only dataclass": (
        """
from dataclasses import dataclass, field
@dataclass(kw_only=True)
class Clip:
    low: float = 0.2
    high: float = 0.2
def f(*, logprobs, old_logprobs, advantages, mask, clip: Clip = Clip()):
    r = torch.exp(torch.where(mask, logprobs - old_logprobs, torch.zeros_like(logprobs)))
    l = torch.max(-advantages * r, -advantages * r.clip(1 - clip.low, 1 + clip.high))
    return l[mask].sum() / max(int(mask.sum()), 1)
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "ppo seq sum": (
        """
def f(logp, logp_old, adv, action_mask, eps_clip=0.2):
    ratio = (logp - logp_old).exp()
    obj = torch.minimum(ratio * adv, ratio.clamp(1 - eps_clip, 1 + eps_clip) * adv)
    return -(obj * action_mask).sum(dim=1).mean()
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "ppo masked_select": (
        """
def f(log_probs, old_log_probs, advantages, loss_mask, clip_ratio=0.2):
    keep = loss_mask.bool()
    lp, olp, a = (x.masked_select(keep) for x in (log_probs, old_log_probs, advantages))
    ratio = (lp - olp).exp()
    return torch.maximum(-a * ratio, -a * ratio.clamp(1 - clip_ratio, 1 + clip_ratio)).mean()
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "ppo entropy bonus none": (
        """
def f(batch: dict, clip_range: float = 0.2):
    m = batch["attention"].float()
    logr = (batch["new"] - batch["old"]) * m
    r = logr.exp()
    a = batch["adv"]
    pg = torch.max(-r * a, -r.clamp(1 - clip_range, 1 + clip_range) * a)
    return (pg * m).sum() / m.sum().clamp_min(1.0)
""",
        {
            "bind": {"batch": {"attention": "mask", "new": "logprob", "old": "old_logprob", "adv": "advantage"}},
            "stage": "policy-loss",
            "algorithm": "ppo",
        },
    ),
    "packed numpy cu": (
        '''
def f(logprobs, old_logprobs, advantages, loss_mask, cu_seqlens, eps_clip: float = 0.2):
    """logprobs, old_logprobs, advantages, loss_mask: [N]"""
    ratio = torch.exp(logprobs - old_logprobs)
    pg = torch.maximum(-ratio * advantages, -ratio.clamp(1 - eps_clip, 1 + eps_clip) * advantages)
    return (pg * loss_mask).sum() / loss_mask.sum().clamp(min=1)
''',
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "future annotations config": (
        """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Cfg:
    clip_eps: float = 0.2
    group_size: int = 2

def f(cfg: Cfg, *, logprobs: torch.Tensor, old_logprobs: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor):
    rho = torch.exp(logprobs - old_logprobs)
    loss = torch.max(-rho * advantages, -rho.clamp(1 - cfg.clip_eps, 1 + cfg.clip_eps) * advantages)
    return (loss * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "pydantic config": (
        """
from pydantic import BaseModel
class Cfg(BaseModel):
    clip_low: float = 0.2
    clip_high: float = 0.28
def f(logp, old_logp, adv, mask, cfg: Cfg):
    r = (logp - old_logp).exp()
    l = -torch.min(r * adv, r.clamp(1 - cfg.clip_low, 1 + cfg.clip_high) * adv)
    return (l * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "config dict": (
        """
CONFIG = {"clip_eps": 0.2, "eps": 1e-6}
def f(logprobs, old_logprobs, advantages, mask, config=CONFIG):
    e = config["clip_eps"]
    r = torch.exp(logprobs - old_logprobs)
    l = torch.max(-r * advantages, -r.clamp(1 - e, 1 + e) * advantages)
    return (l * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "optional mask none": (
        """
from typing import Optional
def f(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, advantages: torch.Tensor,
    mask: Optional[torch.Tensor] = None, eps_clip: float = 0.2,
):
    r = torch.exp(logprobs - old_logprobs)
    l = torch.max(-r * advantages, -r.clamp(1 - eps_clip, 1 + eps_clip) * advantages)
    if mask is None:
        return l.mean()
    return (l * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "T B axes": (
        '''
def f(logprobs, old_logprobs, adv, mask, clip_range=0.1):
    """All inputs (B, T)."""
    lp, olp, a, m = (x.transpose(0, 1) for x in (logprobs, old_logprobs, adv, mask.float()))
    r = torch.exp(lp - olp)
    l = -torch.minimum(r * a, torch.clip(r, 1 - clip_range, 1 + clip_range) * a)
    return (l * m).sum() / m.sum().clamp(min=1)
''',
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "packed position segments": (
        '''
def f(logprobs, old_logprobs, advantages, loss_mask, seqlens, eps_clip=0.2):
    """logprobs: [N]; old_logprobs: [N]; advantages: [N]; loss_mask: [N]"""
    r = torch.exp(logprobs - old_logprobs)
    l = torch.maximum(-r * advantages, -r.clamp(1 - eps_clip, 1 + eps_clip) * advantages) * loss_mask
    parts = zip(l.split(seqlens.tolist()), loss_mask.split(seqlens.tolist()))
    return torch.stack([x.sum() / m.sum().clamp(min=1) for x, m in parts]).mean()
''',
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "values without a mask": (
        """
def f(logp, old_logp, adv, eps=0.2, mask=None):
    r = (logp - old_logp).exp()
    l = -torch.min(r * adv, r.clamp(1 - eps, 1 + eps) * adv)
    return l.mean() if mask is None else (l * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "ppo normalizing over trained tokens": (
        """
def f(logp, old_logp, adv, mask, clip_eps=0.2):
    n = mask.sum()
    mean = (adv * mask).sum() / n
    var = ((adv - mean) ** 2 * mask).sum() / n
    adv = (adv - mean) / (var.sqrt() + 1e-8)
    ratio = (logp - old_logp).exp()
    loss = -torch.min(ratio * adv, ratio.clamp(1 - clip_eps, 1 + clip_eps) * adv)
    return (loss * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "ppo normalizing one advantage per response": (
        """
def f(logp, old_logp, adv: "B", mask, clip_eps=0.2):
    adv = ((adv - adv.mean()) / (adv.std() + 1e-5))[:, None]
    ratio = (logp - old_logp).exp()
    loss = -torch.min(ratio * adv, ratio.clamp(1 - clip_eps, 1 + clip_eps) * adv)
    return (loss * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "ppo with a bound of the ratio under a name of its own": (
        """
UPPER = 5.0
def f(logprobs, old_logprobs, advantages, mask, clip_eps=0.2):
    r = (logprobs - old_logprobs).exp()
    x = torch.min(r * advantages, r.clamp(1 - clip_eps, 1 + clip_eps) * advantages)
    x = torch.where(advantages < 0, torch.max(x, UPPER * advantages), x)
    return -(x * mask).sum() / mask.sum()
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "ppo with a literal bound of the ratio": (
        """
def f(logprobs, old_logprobs, advantages, mask, clip_eps=0.2):
    r = (logprobs - old_logprobs).exp()
    l = -torch.min(r.clamp(max=10.0) * advantages, r.clamp(1 - clip_eps, 1 + clip_eps) * advantages)
    return (l * mask).sum() / mask.sum()
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "ppo with an entropy bonus": (
        """
def f(logprobs, old_logprobs, advantages, entropy, mask, clip_eps=0.2, ent_coef=0.01):
    r = (logprobs - old_logprobs).exp()
    l = -torch.min(r * advantages, r.clamp(1 - clip_eps, 1 + clip_eps) * advantages) - ent_coef * entropy
    return (l * mask).sum() / mask.sum()
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
    "grpo, tokens averaged in the loss and rows in the kl": (
        """
def f(logprobs, old_logprobs, ref_logprobs, advantages, response_mask, clip_eps=0.2, kl_loss_coef=0.01):
    ratio, d = (logprobs - old_logprobs).exp(), ref_logprobs - logprobs
    pg = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - clip_eps, 1 + clip_eps))
    pg = (pg * response_mask).sum() / response_mask.sum()
    k = ((d.exp() - d - 1) * response_mask).sum(-1) / response_mask.sum(-1).clamp(min=1)
    return pg + kl_loss_coef * k.mean()
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "ppo normalizing advantages of more than one sample": (
        """
class T:
    normalize_advantage = True
    clip_range = 0.2
    def loss(self, log_prob, old_log_prob, advantages):
        if self.normalize_advantage and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        ratio = torch.exp(log_prob - old_log_prob)
        clipped = torch.clamp(ratio, 1 - self.clip_range, 1 + self.clip_range)
        return -torch.min(advantages * ratio, advantages * clipped).mean()
f = T().loss
""",
        {"stage": "policy-loss", "algorithm": "ppo"},
    ),
}
