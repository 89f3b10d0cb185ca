"""Correct policy losses of GRPO, DAPO, GSPO and others, after public styles."""

from typing import Any

STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo loss tinyrl": (
        """
def f(logprobs, ref_logprobs, advantages, mask, kl_weight=0.01):
    # one gradient step per batch: the old policy is the current one
    ratio = torch.exp(logprobs - logprobs.detach())
    pg = -ratio * advantages[:, None]
    d = ref_logprobs - logprobs
    kl = d.exp() - d - 1
    tok = (pg + kl_weight * kl) * mask
    return (tok.sum(1) / mask.sum(1).clamp(min=1)).mean()
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "grpo loss trl method args": (
        """
from types import SimpleNamespace
class T:
    def __init__(self):
        self.args = SimpleNamespace(epsilon=0.2, epsilon_high=0.2, beta=0.04)
        self.epsilon_low, self.epsilon_high, self.beta = 0.2, 0.2, 0.04
    def loss(self, per_token_logps, inputs):
        a = inputs["advantages"]
        m = inputs["completion_mask"]
        old = inputs["old_per_token_logps"]
        c1 = torch.exp(per_token_logps - old)
        c2 = torch.clamp(c1, 1 - self.epsilon_low, 1 + self.epsilon_high)
        l = -torch.min(c1 * a.unsqueeze(1), c2 * a.unsqueeze(1))
        if self.beta != 0.0:
            d = inputs["ref_per_token_logps"] - per_token_logps
            l = l + self.beta * (torch.exp(d) - d - 1)
        return (l * m).sum() / m.sum().clamp(min=1.0)
f = T().loss
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "grpo loss ragged micro": (
        """
def f(logprobs: list[torch.Tensor], old_logprobs: list[torch.Tensor], advantages: list[float], clip_eps=0.2):
    rows = []
    for lp, olp, a in zip(logprobs, old_logprobs, advantages):
        if lp.numel() == 0:
            rows.append(lp.sum())
            continue
        r = (lp - olp).exp()
        rows.append(-torch.minimum(r * a, r.clamp(1 - clip_eps, 1 + clip_eps) * a).mean())
    return torch.stack(rows).mean()
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "dapo loss keyword": (
        """
def f(*, log_prob, old_log_prob, adv, response_mask, clip_ratio_low=0.2, clip_ratio_high=0.28):
    w = torch.exp(log_prob - old_log_prob)
    lo, hi = 1 - clip_ratio_low, 1 + clip_ratio_high
    per_tok = torch.max(-adv * w, -adv * torch.clamp(w, lo, hi))
    return torch.where(response_mask.bool(), per_tok, 0).sum() / response_mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "dapo"},
    ),
    "dr grpo loss constant": (
        """
MAX_TOKENS = 16
def f(logprobs, old_logprobs, advantages, masks, clip_eps=0.2):
    ratio = (logprobs - old_logprobs).exp()
    a = advantages.unsqueeze(1)
    pg = -torch.min(ratio * a, ratio.clamp(1 - clip_eps, 1 + clip_eps) * a)
    return ((pg * masks).sum(-1) / MAX_TOKENS).mean()
""",
        {"stage": "policy-loss", "algorithm": "dr_grpo"},
    ),
    "gspo masked": (
        """
def f(log_prob, old_log_prob, advantages, response_mask, clip_ratio_low=3e-4, clip_ratio_high=4e-4):
    n = response_mask.sum(-1).clamp(min=1)
    seq = ((log_prob - old_log_prob) * response_mask).sum(-1) / n
    tok = log_prob - log_prob.detach() + seq.detach()[:, None]
    r = tok.exp()
    l = torch.max(-advantages * r, -advantages * r.clamp(1 - clip_ratio_low, 1 + clip_ratio_high))
    return ((l * response_mask).sum(-1) / n).mean()
""",
        {"stage": "policy-loss", "algorithm": "gspo"},
    ),
    "gspo sequence level": (
        """
def f(logp, old_logp, adv: "B", mask, eps=0.2):
    length = mask.sum(1).clamp(min=1)
    s = torch.exp(((logp - old_logp) * mask).sum(1) / length)
    return -torch.min(s * adv, s.clamp(1 - eps, 1 + eps) * adv).mean()
""",
        {"stage": "policy-loss", "algorithm": "gspo"},
    ),
    "policy gradient reinforce numpy-free": (
        """
def f(logp, adv, mask):
    per_row = (logp * mask).sum(1) * adv
    return -per_row.mean()
""",
        {"stage": "policy-loss", "algorithm": "reinforce"},
    ),
    "rows: token loss of dicts": (
        """
def f(rows, clip_eps=0.2):
    total, count = 0.0, 0
    for row in rows:
        lp, old, adv = row["logprobs"], row["old_logprobs"], row["advantage"]
        m = row["loss_mask"].float()
        r = torch.exp(lp - old)
        l = -torch.min(r * adv, r.clamp(1 - clip_eps, 1 + clip_eps) * adv)
        total = total + (l * m).sum()
        count += m.sum()
    return total / count.clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "mask named attention": (
        """
def f(per_token_logps, old_per_token_logps, advantages, completion_attention_mask, eps=0.2):
    r = torch.exp(per_token_logps - old_per_token_logps)
    a = advantages.view(-1, 1)
    l = -torch.min(r * a, r.clamp(1 - eps, 1 + eps) * a)
    return ((l * completion_attention_mask).sum(1) / completion_attention_mask.sum(1).clamp(min=1)).mean()
""",
        {"bind": {"completion_attention_mask": "mask int"}, "stage": "policy-loss", "algorithm": "grpo"},
    ),
    "ppo loss tuple with metrics": (
        """
def f(log_probs, old_log_probs, advantages, response_mask, clip_ratio_low=0.2, clip_ratio_high=0.3, clip_ratio_c=3.0):
    lr = (log_probs - old_log_probs).clamp(-20, 20)
    r = lr.exp()
    a = -advantages * r
    b = -advantages * r.clamp(1 - clip_ratio_low, 1 + clip_ratio_high)
    c1 = torch.maximum(a, b)
    c2 = torch.minimum(c1, -advantages * clip_ratio_c)
    l = torch.where(advantages < 0, c2, c1)
    n = response_mask.sum().clamp(min=1)
    return (l * response_mask).sum() / n, {"clip": ((b > a) * response_mask).sum() / n}
""",
        {"stage": "policy-loss", "algorithm": "dual clip"},
    ),
    "grpo mean kl k3 split": (
        """
def f(new_logps, old_logps, ref_logps, advantages, mask, clip_eps=0.2, beta=0.02):
    r = (new_logps - old_logps).exp()
    a = advantages[..., None]
    pg = -torch.minimum(r * a, torch.clamp(r, 1 - clip_eps, 1 + clip_eps) * a)
    d = ref_logps - new_logps
    kl = torch.expm1(d) - d
    n = mask.sum(-1).clamp(min=1)
    policy = ((pg * mask).sum(-1) / n).mean()
    penalty = ((kl * mask).sum(-1) / n).mean()
    return policy + beta * penalty
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "grpo loss k1 in reward style none, sum": (
        """
def f(logps, old_logps, advantages, mask, eps=0.2):
    ratio = torch.exp(logps - old_logps)
    a = advantages.unsqueeze(-1)
    return -(torch.min(ratio * a, ratio.clamp(1 - eps, 1 + eps) * a) * mask).sum() / logps.size(0)
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "nested tensors to list mean": (
        '''
def f(logp: list[torch.Tensor], old_logp: list[torch.Tensor], advantages: torch.Tensor, eps=0.2):
    """advantages: (B,)"""
    terms = []
    for i in range(len(logp)):
        if logp[i].numel() == 0:
            continue
        r = (logp[i] - old_logp[i]).exp()
        terms.append(-torch.min(r * advantages[i], r.clamp(1 - eps, 1 + eps) * advantages[i]))
    return torch.cat(terms).mean()
''',
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "G K T no mask": (
        """
def f(logp: "G K T", old_logp: "G K T", adv: "G K", eps=0.2):
    r = torch.exp(logp - old_logp)
    a = adv.unsqueeze(-1)
    return torch.max(-r * a, -r.clamp(1 - eps, 1 + eps) * a).mean()
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "cispo minimax": (
        """
def f(log_probs, old_log_probs, advantages, mask, clip_low=0.9, clip_high=0.2):
    with torch.no_grad():
        w = torch.exp(log_probs - old_log_probs).clamp(1 - clip_low, 1 + clip_high)
    return -(w * advantages * log_probs * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "cispo"},
    ),
    "reinforce grpo name": (
        """
def f(logprobs, advantages, mask):
    per = -(logprobs * advantages[:, None]) * mask
    return (per.sum(1) / mask.sum(1).clamp(min=1)).mean()
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "rloo loss sequence": (
        '''
def f(logprobs, advantages, mask):
    """advantages: [B]"""
    return -((logprobs * mask).sum(1) * advantages).mean()
''',
        {"stage": "policy-loss", "algorithm": "rloo"},
    ),
    "hf compute_loss inputs": (
        """
import torch.nn.functional as F
class T:
    beta = 0.0
    epsilon_low, epsilon_high = 0.2, 0.28
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        ids = torch.cat((inputs["prompt_ids"], inputs["completion_ids"]), 1)
        attn = torch.cat((inputs["prompt_mask"], inputs["completion_mask"]), 1)
        n = inputs["completion_ids"].shape[1]
        logits = model(input_ids=ids, attention_mask=attn).logits[:, -n - 1:-1]
        lp = -F.cross_entropy(logits.transpose(1, 2), inputs["completion_ids"], reduction="none")
        old = inputs.get("old_per_token_logps")
        old = lp.detach() if old is None else old
        r = torch.exp(lp - old)
        a = inputs["advantages"].unsqueeze(1)
        l = -torch.min(r * a, r.clamp(1 - self.epsilon_low, 1 + self.epsilon_high) * a)
        m = inputs["completion_mask"]
        return (l * m).sum() / m.sum().clamp(min=1)
f = T().compute_loss
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "two-sided clip": (
        """
def f(per_token_logps, old_per_token_logps, advantages, completion_mask, epsilon=0.2, delta=1.5):
    ratio = torch.exp(per_token_logps - old_per_token_logps)
    clipped, held = ratio.clamp(1 - epsilon, 1 + epsilon), ratio
    if delta is not None:
        held = ratio.clamp(max=delta)
    loss = -torch.min(held * advantages.unsqueeze(1), clipped * advantages.unsqueeze(1))
    return ((loss * completion_mask).sum(-1) / completion_mask.sum(-1).clamp(min=1)).mean()
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "two-sided clip of a configuration": (
        """
from types import SimpleNamespace

class Trainer:
    def __init__(self):
        self.args = SimpleNamespace(epsilon=0.2, epsilon_high=0.28, delta=4.0)
    def loss(self, logps, old_logps, advantages, mask):
        ratio = (logps - old_logps).exp()
        clipped = ratio.clamp(1 - self.args.epsilon, 1 + self.args.epsilon_high)
        loss = -torch.min(ratio.clamp(max=self.args.delta) * advantages, clipped * advantages)
        return (loss * mask).sum() / mask.sum().clamp(min=1)

f = Trainer().loss
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "kl weighted by the ratio": (
        """
def f(logps, old_logps, ref_logps, advantages, mask, epsilon=0.2, beta=0.04):
    ratio, gap = (logps - old_logps).exp(), ref_logps - logps
    loss = -torch.min(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)
    loss = loss + beta * ratio * (gap.exp() - gap - 1)
    return (loss * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
    "kl weighted by a ratio of 1": (
        """
def f(logps, ref_logps, advantages, mask, beta=0.04):
    ratio, gap = (logps - logps.detach()).exp(), ref_logps - logps
    loss = -ratio * advantages + beta * ratio * (gap.exp() - gap - 1)
    return (loss * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "policy-loss", "algorithm": "grpo"},
    ),
}
