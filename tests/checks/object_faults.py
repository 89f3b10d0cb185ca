"""Advantages, KL and loss of GRPO on containers and methods, and faults of twelve classes in each."""

from checks.fault_matrix import Module

MODULES: dict[str, Module] = {
    "dict": Module(
        """
import torch

def add_advantages(batch):
    r, g, m = batch["rewards"], batch["group_ids"], batch["response_mask"]
    uniq, inv = torch.unique(g, return_inverse=True)
    cnt = torch.bincount(inv).float()
    mean = torch.zeros_like(cnt).index_add(0, inv, r) / cnt
    c = r - mean[inv]
    sd = (torch.zeros_like(cnt).index_add(0, inv, c * c) / cnt).sqrt()
    return {"advantages": (c / (sd[inv] + 1e-6))[:, None] * m}

def kl_of(batch):
    z = batch["ref_log_probs"] - batch["log_probs"]
    return (z.exp() - z - 1) * batch["response_mask"]

def loss_of(batch, clip_eps=0.2):
    m = batch["response_mask"]
    ratio = (batch["log_probs"] - batch["old_log_probs"]).exp()
    s = torch.min(ratio * batch["advantages"], ratio.clamp(1 - clip_eps, 1 + clip_eps) * batch["advantages"])
    loss = -(s * m).sum() / m.sum().clamp(min=1)
    return {"loss": loss}
""",
        {
            "add_advantages": {"stage": "advantage", "algorithm": "grpo"},
            "kl_of": {"stage": "kl", "algorithm": "k3"},
            "loss_of": {"stage": "policy-loss", "algorithm": "grpo"},
        },
        {
            "sign": ("add_advantages", "c = r - mean[inv]", "c = mean[inv] - r"),
            "clip": (
                "loss_of",
                "ratio.clamp(1 - clip_eps, 1 + clip_eps)",
                "ratio.clamp(1 - clip_eps, 1 + 2 * clip_eps)",
            ),
            "stopped gradient": ("loss_of", "torch.min(ratio *", "torch.min(ratio.detach() *"),
            "denominator": ("loss_of", "m.sum().clamp(min=1)", "m.numel()"),
            "mask": ("loss_of", "-(s * m).sum()", "-s.sum()"),
            "population of a statistic": ("add_advantages", "sd[inv] + 1e-6", "sd.mean() + 1e-6"),
            "order of KL and log": ("kl_of", "z.exp() - z - 1", "z.exp().log() - z + z.exp() - 1"),
            "direction of a KL": (
                "kl_of",
                'batch["ref_log_probs"] - batch["log_probs"]',
                'batch["log_probs"] - batch["ref_log_probs"]',
            ),
            "shift": ("loss_of", 'batch["old_log_probs"])', 'batch["old_log_probs"].roll(1, 1))'),
            "grouping": (
                "add_advantages",
                "torch.unique(g, return_inverse=True)",
                "torch.unique(g // 2, return_inverse=True)",
            ),
            "aggregation": (
                "loss_of",
                "loss = -(s * m).sum() / m.sum().clamp(min=1)",
                "loss = -((s * m).sum(1) / m.sum(1).clamp(min=1)).sum()",
            ),
            "deviation": ("add_advantages", ".sqrt()", ""),
        },
    ),
    "dataclass": Module(
        """
import torch
from dataclasses import dataclass

@dataclass
class Experience:
    rewards: torch.Tensor
    group_ids: torch.Tensor
    action_mask: torch.Tensor

@dataclass
class Policy:
    action_log_probs: torch.Tensor
    base_action_log_probs: torch.Tensor
    action_mask: torch.Tensor

@dataclass
class Update:
    action_log_probs: torch.Tensor
    old_action_log_probs: torch.Tensor
    advantages: torch.Tensor
    action_mask: torch.Tensor

def shape_advantages(experience: Experience):
    r, g = experience.rewards, experience.group_ids
    eq = (g.unsqueeze(0) == g.unsqueeze(1)).to(r.dtype)
    count = eq.sum(1)
    mu = eq.mv(r) / count
    dev = torch.sqrt((eq * (r.unsqueeze(0) - mu.unsqueeze(1)).square()).sum(1) / count)
    return ((r - mu) / (dev + 1e-8)).unsqueeze(1) * experience.action_mask

def kl_of(policy: Policy):
    log_ratio = policy.base_action_log_probs - policy.action_log_probs
    k = log_ratio.exp() - 1 - log_ratio
    return torch.where(policy.action_mask.bool(), k, torch.zeros_like(k))

def loss_of(update: Update, clip_eps: float = 0.2):
    ratio = torch.exp(update.action_log_probs - update.old_action_log_probs)
    one = ratio * update.advantages
    two = ratio.clamp(1 - clip_eps, 1 + clip_eps) * update.advantages
    loss = -torch.min(one, two)
    mask = update.action_mask.float()
    return ((loss * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()
""",
        {
            "shape_advantages": {"stage": "advantage", "algorithm": "grpo"},
            "kl_of": {"stage": "kl", "algorithm": "k3"},
            "loss_of": {"stage": "policy-loss", "algorithm": "grpo"},
        },
        {
            "sign": ("loss_of", "-torch.min(one, two)", "torch.min(one, two)"),
            "clip": ("loss_of", "loss = -torch.min(one, two)", "loss = -two"),
            "stopped gradient": ("loss_of", "one = ratio *", "one = ratio.data *"),
            "denominator": ("loss_of", "mask.sum(1).clamp(min=1)", "mask.size(1)"),
            "mask": ("loss_of", "(loss * mask).sum(1)", "loss.sum(1)"),
            "population of a statistic": ("shape_advantages", "mu = eq.mv(r) / count", "mu = r.mean().expand_as(r)"),
            "order of KL and log": (
                "kl_of",
                "log_ratio.exp() - 1 - log_ratio",
                "log_ratio.exp() - 1 - log_ratio.exp().log1p()",
            ),
            "direction of a KL": (
                "kl_of",
                "policy.base_action_log_probs - policy.action_log_probs",
                "policy.action_log_probs - policy.base_action_log_probs",
            ),
            "shift": ("kl_of", "policy.base_action_log_probs -", "policy.base_action_log_probs.roll(-1, 1) -"),
            "grouping": (
                "shape_advantages",
                "(g.unsqueeze(0) == g.unsqueeze(1))",
                "(g.unsqueeze(0) >= g.unsqueeze(1))",
            ),
            "aggregation": ("loss_of", "/ mask.sum(1).clamp(min=1)).mean()", "/ mask.sum(1).clamp(min=1)).sum()"),
            "deviation": ("shape_advantages", "dev = torch.sqrt(", "dev = ("),
        },
    ),
    "config object": Module(
        """
import torch
from dataclasses import dataclass

@dataclass(frozen=True)
class Config:
    num_generations: int = 2
    adv_eps: float = 1e-6
    clip_eps_low: float = 0.2
    clip_eps_high: float = 0.28
    kl_coef: float = 0.05

def grouped(rewards, group_ids, mask, config: Config):
    out = torch.zeros_like(rewards)
    for gid in torch.unique(group_ids):
        pick = group_ids.eq(gid)
        mean = rewards[pick].mean()
        std = (rewards[pick] - mean).square().mean().sqrt()
        out[pick] = (rewards[pick] - mean) / (std + config.adv_eps)
    return out[:, None] * mask

def kl_est(log_probs, ref_log_probs, mask, config: Config):
    d = ref_log_probs - log_probs
    return (d.exp() - d - 1) * mask

def actor_loss(log_probs, old_log_probs, ref_log_probs, advantages, mask, config: Config):
    ratio = torch.exp(log_probs - old_log_probs)
    capped = torch.clamp(ratio, 1 - config.clip_eps_low, 1 + config.clip_eps_high)
    pg = -torch.min(ratio * advantages, capped * advantages)
    d = ref_log_probs - log_probs
    total = pg + config.kl_coef * (d.exp() - d - 1)
    return (total * mask).sum() / mask.sum().clamp(min=1)
""",
        {
            "grouped": {"stage": "advantage", "algorithm": "grpo"},
            "kl_est": {"stage": "kl", "algorithm": "k3"},
            "actor_loss": {"stage": "policy-loss", "algorithm": "grpo"},
        },
        {
            "sign": ("actor_loss", "total = pg + config", "total = pg - config"),
            "clip": ("actor_loss", "1 + config.clip_eps_high", "1 + config.clip_eps_low"),
            "stopped gradient": (
                "actor_loss",
                "    d = ref_log_probs - log_probs\n    total",
                "    d = ref_log_probs - log_probs.detach()\n    total",
            ),
            "denominator": ("actor_loss", "mask.sum().clamp(min=1)", "mask.numel()"),
            "mask": ("actor_loss", "(total * mask).sum()", "(pg * mask + total - pg).sum()"),
            "population of a statistic": (
                "grouped",
                "rewards[pick] - mean).square().mean().sqrt()",
                "rewards - rewards.mean()).square().mean().sqrt()",
            ),
            "order of KL and log": (
                "actor_loss",
                "config.kl_coef * (d.exp() - d - 1)",
                "config.kl_coef * (d.exp() - d).log()",
            ),
            "direction of a KL": (
                "actor_loss",
                "    d = ref_log_probs - log_probs\n    total",
                "    d = log_probs - ref_log_probs\n    total",
            ),
            "shift": (
                "actor_loss",
                "    d = ref_log_probs - log_probs\n    total",
                "    d = ref_log_probs.roll(1, 1) - log_probs\n    total",
            ),
            "grouping": ("grouped", "group_ids.eq(gid)", "group_ids.le(gid)"),
            "aggregation": ("actor_loss", "(total * mask).sum() / mask.sum().clamp(min=1)", "(total * mask).mean()"),
            "deviation": ("grouped", ".square().mean().sqrt()", ".square().sum().sqrt()"),
        },
    ),
    "method": Module(
        """
import torch

class Learner:
    def __init__(self, group_size=2, clip_eps=0.2, beta=0.1):
        self.group_size, self.clip_eps, self.beta = group_size, clip_eps, beta

    def advantages(self, rewards):
        g = rewards.reshape(-1, self.group_size)
        return ((g - g.mean(1, keepdim=True)) / (g.std(1, keepdim=True, correction=0) + 1e-5)).reshape(-1)

    def kl(self, logprobs, ref_logprobs):
        lr = ref_logprobs - logprobs
        return lr.exp() - lr - 1

    def loss(self, logprobs, old_logprobs, ref_logprobs, advantages, mask):
        ratio = (logprobs - old_logprobs).exp()
        a = advantages.unsqueeze(-1)
        pg = torch.max(-ratio * a, -ratio.clamp(1 - self.clip_eps, 1 + self.clip_eps) * a)
        per_token = pg + self.beta * self.kl(logprobs, ref_logprobs)
        return (per_token * mask).sum() / mask.sum().clamp(min=1)

learner = Learner()
advantages, kl, loss = learner.advantages, learner.kl, learner.loss
""",
        {
            "advantages": {"stage": "advantage", "algorithm": "grpo"},
            "kl": {"stage": "kl", "algorithm": "k3"},
            "loss": {"stage": "policy-loss", "algorithm": "grpo"},
        },
        {
            "sign": ("loss", "torch.max(-ratio * a, -ratio", "torch.min(ratio * a, ratio"),
            "clip": ("loss", "1 - self.clip_eps, 1 + self.clip_eps", "1 - self.clip_eps, 1 - self.clip_eps"),
            "stopped gradient": (
                "loss",
                "ratio = (logprobs - old_logprobs).exp()",
                "ratio = (logprobs.detach() - old_logprobs).exp()",
            ),
            "denominator": ("loss", "mask.sum().clamp(min=1)", "mask.numel()"),
            "mask": ("loss", "(per_token * mask).sum()", "per_token.sum()"),
            "population of a statistic": ("advantages", "g.std(1, keepdim=True, correction=0)", "g.std(correction=0)"),
            "order of KL and log": ("kl", "lr.exp() - lr - 1", "torch.log(lr.exp() - lr)"),
            "direction of a KL": ("kl", "lr = ref_logprobs - logprobs", "lr = logprobs - ref_logprobs"),
            "shift": ("loss", "(logprobs - old_logprobs)", "(logprobs.roll(1, -1) - old_logprobs)"),
            "grouping": (
                "advantages",
                "rewards.reshape(-1, self.group_size)",
                "rewards.reshape(self.group_size, -1).t()",
            ),
            "aggregation": (
                "loss",
                "(per_token * mask).sum() / mask.sum().clamp(min=1)",
                "(per_token * mask).sum(1).amax()",
            ),
            "deviation": ("advantages", "g.std(1, keepdim=True, correction=0)", "g.var(1, keepdim=True, correction=0)"),
        },
    ),
    "compute_loss": Module(
        """
import torch
import torch.nn.functional as F
from dataclasses import dataclass

@dataclass
class Args:
    epsilon: float = 0.2
    beta: float = 0.04
    num_generations: int = 2
    temperature: float = 1.0

class MyTrainer:
    def __init__(self):
        self.args = Args()

    def _advantages(self, rewards):
        k = self.args.num_generations
        mean = rewards.view(-1, k).mean(dim=1).repeat_interleave(k, dim=0)
        std = rewards.view(-1, k).std(dim=1).repeat_interleave(k, dim=0)
        return (rewards - mean) / (std + 1e-4)

    def _logps(self, model, input_ids, attention_mask, keep):
        logits = model(input_ids=input_ids, attention_mask=attention_mask).logits
        logits = logits[:, :-1, :]
        logits = logits[:, -keep:] / self.args.temperature
        ids = input_ids[:, -keep:]
        return torch.gather(F.log_softmax(logits, -1), 2, ids.unsqueeze(-1)).squeeze(-1)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        prompt_ids, prompt_mask = inputs["prompt_ids"], inputs["prompt_mask"]
        completion_ids, completion_mask = inputs["completion_ids"], inputs["completion_mask"]
        input_ids = torch.cat([prompt_ids, completion_ids], dim=1)
        attention_mask = torch.cat([prompt_mask, completion_mask], dim=1)
        logps = self._logps(model, input_ids, attention_mask, completion_ids.size(1))
        old, ref, adv = inputs["old_per_token_logps"], inputs["ref_per_token_logps"], inputs["advantages"]
        ratio = torch.exp(logps - old)
        clipped = torch.clamp(ratio, 1 - self.args.epsilon, 1 + self.args.epsilon)
        loss = -torch.min(ratio * adv.unsqueeze(1), clipped * adv.unsqueeze(1))
        kl = torch.exp(ref - logps) - (ref - logps) - 1
        loss = loss + self.args.beta * kl
        return ((loss * completion_mask).sum(1) / completion_mask.sum(1).clamp(min=1)).mean()

t = MyTrainer()
compute_loss, advantages = t.compute_loss, t._advantages
""",
        {
            "advantages": {"stage": "advantage", "algorithm": "grpo"},
            "compute_loss": {"stage": "policy-loss", "algorithm": "grpo"},
        },
        {
            "sign": ("compute_loss", "loss = -torch.min", "loss = torch.min"),
            "clip": (
                "compute_loss",
                "1 - self.args.epsilon, 1 + self.args.epsilon",
                "1 - self.args.epsilon, 1 + 10 * self.args.epsilon",
            ),
            "stopped gradient": (
                "compute_loss",
                "ratio = torch.exp(logps - old)",
                "ratio = torch.exp(logps.detach() - old)",
            ),
            "denominator": ("compute_loss", "completion_mask.sum(1).clamp(min=1)", "completion_mask.size(1)"),
            "mask": ("compute_loss", "(loss * completion_mask).sum(1)", "loss.sum(1)"),
            "population of a statistic": (
                "advantages",
                "std = rewards.view(-1, k).std(dim=1).repeat_interleave(k, dim=0)",
                "std = rewards.std()",
            ),
            "order of KL and log": (
                "compute_loss",
                "kl = torch.exp(ref - logps) - (ref - logps) - 1",
                "kl = torch.log(torch.exp(ref - logps) - (ref - logps))",
            ),
            "direction of a KL": (
                "compute_loss",
                "kl = torch.exp(ref - logps) - (ref - logps) - 1",
                "kl = torch.exp(logps - ref) - (logps - ref) - 1",
            ),
            "shift": ("compute_loss", "logits = logits[:, :-1, :]", "logits = logits[:, 1:, :]"),
            "grouping": (
                "advantages",
                "mean = rewards.view(-1, k).mean(dim=1).repeat_interleave(k, dim=0)",
                "mean = rewards.view(k, -1).mean(dim=0).repeat(k)",
            ),
            "aggregation": (
                "compute_loss",
                "/ completion_mask.sum(1).clamp(min=1)).mean()",
                "/ completion_mask.sum(1).clamp(min=1)).sum()",
            ),
            "deviation": ("advantages", ".std(dim=1)", ".var(dim=1)"),
        },
    ),
}
