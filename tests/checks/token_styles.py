"""Correct KL estimators, value losses, log-probs, entropies and others, after public styles."""

from typing import Any

STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "k1 masked int": (
        """
def f(policy_logprobs, reference_logprobs, mask):
    return (policy_logprobs - reference_logprobs) * mask.int()
""",
        {"stage": "kl", "algorithm": "k1"},
    ),
    "k3 dict of method": (
        """
class Ctl:
    def kl(self, batch):
        gap = batch["ref_logprobs"].sub(batch["logprobs"])
        return {"kl": gap.exp().sub(gap).sub(1.0)}
f = Ctl().kl
""",
        {"stage": "kl", "algorithm": "k3"},
    ),
    "k3 ratio form": (
        """
def f(logps, ref_logps):
    ratio = torch.exp(ref_logps - logps)
    return ratio - torch.log(ratio) - 1
""",
        {"stage": "kl", "algorithm": "k3"},
    ),
    "k2 numpy": (
        """
import numpy as np
def f(logprob: np.ndarray, ref_logprob: np.ndarray):
    return np.square(logprob - ref_logprob) / 2
""",
        {"stage": "kl", "algorithm": "k2"},
    ),
    "kl estimator switch": (
        """
def f(log_probs, log_probs_base, kind="k3"):
    d = log_probs.float() - log_probs_base.float()
    if kind == "k1":
        return d
    if kind == "k2":
        return d ** 2 / 2
    d = -d
    return d.exp() - 1 - d
""",
        {"stage": "kl", "algorithm": "k3"},
    ),
    "value loss verl": (
        """
def f(vpreds, returns, values, response_mask, cliprange_value=0.5):
    clipped = torch.max(torch.min(vpreds, values + cliprange_value), values - cliprange_value)
    l = torch.max((vpreds - returns) ** 2, (clipped - returns) ** 2)
    return 0.5 * (l * response_mask).sum() / response_mask.sum().clamp(min=1)
""",
        {"stage": "value-loss", "algorithm": "clipped value"},
    ),
    "value loss cleanrl": (
        """
def f(newvalue, b_values, b_returns, clip_coef=0.2):
    un = (newvalue - b_returns) ** 2
    c = b_values + torch.clamp(newvalue - b_values, -clip_coef, clip_coef)
    return 0.5 * torch.max(un, (c - b_returns) ** 2).mean()
""",
        {
            "stage": "value-loss",
            "algorithm": "clipped value",
            "bind": {"newvalue": "value", "b_values": "old_value", "b_returns": "returns", "clip_coef": "value_clip"},
        },
    ),
    "logprob logsumexp": (
        """
def f(logits, labels):
    picked = torch.gather(logits, dim=-1, index=labels.unsqueeze(-1)).squeeze(-1)
    return picked - torch.logsumexp(logits, dim=-1)
""",
        {"stage": "logprob"},
    ),
    "logprob per row cross entropy": (
        """
import torch.nn.functional as F
def f(logits, input_ids):
    shift = logits[..., :-1, :].contiguous()
    target = input_ids[..., 1:].contiguous()
    ce = F.cross_entropy(shift.view(-1, shift.size(-1)), target.view(-1), reduction="none")
    return -ce.view(target.shape)
""",
        {"stage": "logprob"},
    ),
    "entropy categorical": (
        """
def f(logits):
    return torch.distributions.Categorical(logits=logits).entropy()
""",
        {"stage": "entropy"},
    ),
    "aggregate token mean": (
        """
def f(loss_mat, loss_mask):
    return torch.einsum("bt,bt->", loss_mat, loss_mask.float()) / loss_mask.sum().clamp(min=1)
""",
        {"stage": "aggregate", "claims": {"aggregation": "token-mean"}},
    ),
    "kl shaped reward": (
        """
def f(token_level_scores, log_probs, ref_log_probs, response_mask, kl_coef=0.05):
    kl = (log_probs - ref_log_probs) * response_mask
    return token_level_scores - kl_coef * kl
""",
        {"stage": "reward"},
    ),
    "k3 masked float": (
        """
def f(log_prob, ref_log_prob, response_mask):
    m = response_mask.to(log_prob.dtype)
    x = torch.clamp(ref_log_prob - log_prob, min=-20, max=20)
    return torch.clamp(x.exp() - x - 1, min=-10, max=10) * m
""",
        {"stage": "kl", "algorithm": "k3"},
    ),
    "kl named verl": (
        """
def f(logprob, ref_logprob, kl_penalty="low_var_kl"):
    d = ref_logprob - logprob
    if kl_penalty == "kl":
        return -d
    return d.exp() - d - 1
""",
        {"stage": "kl", "algorithm": "k3"},
    ),
    "k1 ragged": (
        """
def f(logprobs: list[torch.Tensor], ref_logprobs: list[torch.Tensor]):
    return [a - b for a, b in zip(logprobs, ref_logprobs)]
""",
        {"stage": "kl", "algorithm": "k1"},
    ),
    "k3 G K T": (
        """
def f(logp: "G K T", ref_logp: "G K T", mask: "G K T"):
    d = (ref_logp - logp) * mask
    return d.exp() - 1 - d
""",
        {"stage": "kl", "algorithm": "k3"},
    ),
    "value loss openrlhf": (
        """
class ValueLoss(torch.nn.Module):
    def __init__(self, clip_eps=0.2):
        super().__init__()
        self.clip_eps = clip_eps
    def forward(self, values, old_values, returns, action_mask):
        vc = old_values + (values - old_values).clamp(-self.clip_eps, self.clip_eps)
        l = torch.max((vc - returns) ** 2, (values - returns) ** 2)
        return 0.5 * (l * action_mask).sum() / action_mask.sum().clamp(min=1)
f = ValueLoss()
""",
        {"stage": "value-loss", "algorithm": "ppo", "numbers": {"value_clip": 0.2}},
    ),
    "value loss mse": (
        """
def f(vpred, target, mask):
    return torch.nn.functional.mse_loss(vpred[mask], target[mask])
""",
        {"stage": "value-loss", "algorithm": "squared value", "bind": {"vpred": "values", "target": "returns"}},
    ),
    "logprob chunked": (
        """
def f(logits, token_ids):
    rows = []
    for lg, ids in zip(logits, token_ids):
        rows.append(lg.log_softmax(-1)[torch.arange(len(ids)), ids])
    return torch.stack(rows)
""",
        {"stage": "logprob"},
    ),
    "logprob one hot": (
        """
def f(logits, tokens, temperature: float = 1.0):
    lp = torch.nn.functional.log_softmax(logits.float() / temperature, dim=2)
    return (lp * torch.nn.functional.one_hot(tokens, logits.shape[-1])).sum(2)
""",
        {"stage": "logprob"},
    ),
    "entropy logsumexp": (
        """
def f(logits):
    lp = logits - logits.logsumexp(-1, keepdim=True)
    return -(lp.exp() * lp).sum(-1)
""",
        {"stage": "entropy"},
    ),
    "weight truncated": (
        """
def f(old_log_probs, rollout_log_probs, response_mask, cap=2.0):
    w = torch.exp(old_log_probs - rollout_log_probs).clamp(max=cap)
    return w * response_mask
""",
        {"stage": "weight"},
    ),
    "reward overlong none": (
        """
def f(rewards, mask):
    return (rewards[:, None] * mask) / mask.sum(1, keepdim=True).clamp(min=1)
""",
        {"stage": "reward"},
    ),
    "normalize batch": (
        """
def f(rewards):
    return (rewards - rewards.mean()) / (rewards.std() + 1e-8)
""",
        {"stage": "normalize"},
    ),
    "value loss of ppo, not clipped": (
        """
def f(values, returns, mask):
    return 0.5 * ((values - returns) ** 2 * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "value-loss", "algorithm": "ppo"},
    ),
    "value loss of ppo beside unused old values": (
        """
def f(vpreds, old_values, returns, mask):
    return ((vpreds - returns) ** 2 * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "value-loss", "algorithm": "ppo"},
    ),
    "value loss of ppo with a literal range": (
        """
def f(vpreds, old_values, returns, mask):
    held = old_values + (vpreds - old_values).clamp(-0.2, 0.2)
    loss = torch.max((vpreds - returns) ** 2, (held - returns) ** 2)
    return 0.5 * (loss * mask).sum() / mask.sum().clamp(min=1)
""",
        {"stage": "value-loss", "algorithm": "ppo"},
    ),
    "k3 weighted by the ratio": (
        """
def f(logprob, old_logprob, ref_logprob):
    gap = ref_logprob - logprob
    return (logprob - old_logprob).exp() * (gap.exp() - gap - 1)
""",
        {"stage": "kl", "algorithm": "k3"},
    ),
}
