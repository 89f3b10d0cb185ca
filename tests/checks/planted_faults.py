"""Small sound functions in each layout that users have, and faults planted in them as replacements of text."""

from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any


@dataclass(frozen=True)
class Sound:
    """A sound function named ``f``: its source, how it is checked, and its faults as ``(old, new)`` texts."""

    source: str
    check: dict[str, Any]
    faults: dict[str, tuple[str, str]] = field(default_factory=dict)

    def function(self, fault: str = "") -> Any:
        """The function, with a fault planted in it."""
        text = dedent(self.source)
        if fault:
            old, new = self.faults[fault]
            assert old in text, (fault, old)
            text = text.replace(old, new)
        names: dict[str, Any] = {"__name__": "own_code"}
        exec(compile(text, __file__, "exec"), names)  # noqa: S102 - the source is ours
        return names["f"]


#: How the loss of one token is computed, and how tokens are averaged, in the functions below.
_LOSS_FAULTS = {
    "sign": ("-torch.min(", "torch.min("),
    "clip": ("torch.min(", "torch.max("),
    "stopped gradient": ("(logp - old_logp).exp()", "(logp - old_logp).exp().detach()"),
}

_HEAD = """
    import torch
    from dataclasses import dataclass
"""

LAYOUTS: dict[str, Sound] = {
    "log-probs of logits": Sound(
        _HEAD
        + """
    def f(logits, labels, temperature=1.0):
        logp = torch.log_softmax(logits / temperature, dim=-1)
        return logp.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    """,
        {"stage": "logprob"},
        {
            "temperature": ("logits / temperature", "logits * temperature"),
            "sign": ("return logp", "return -logp"),
            "shift": ("labels.unsqueeze(-1)", "labels.roll(1, 1).unsqueeze(-1)"),
            "shift to the left": ("labels.unsqueeze(-1)", "labels.roll(-1, 1).unsqueeze(-1)"),
        },
    ),
    "log-probs of whole sequences": Sound(
        _HEAD
        + """
    def f(logits, input_ids):
        every = logits[:, :-1].log_softmax(-1)
        return every.gather(-1, input_ids[:, 1:, None])[..., 0]
    """,
        {"stage": "logprob"},
        {"shift": ("logits[:, :-1]", "logits[:, 1:]")},
    ),
    "log-probs of whole sequences, padded": Sound(
        _HEAD
        + """
    def f(logits, input_ids):
        every = logits[:, :-1].log_softmax(-1)
        chosen = every.gather(-1, input_ids[:, 1:, None])[..., 0]
        return torch.nn.functional.pad(chosen, (1, 0))
    """,
        {"stage": "logprob"},
        {"sign": ("return torch", "return -torch"), "shift": ("input_ids[:, 1:, None]", "input_ids[:, :-1, None]")},
    ),
    "entropy of logits": Sound(
        _HEAD
        + """
    def f(logits):
        p = logits.softmax(-1)
        return logits.logsumexp(-1) - (p * logits).sum(-1)
    """,
        {"stage": "entropy"},
        {"sign": ("return logits", "return -logits"), "mean": (".sum(-1)", ".mean(-1)")},
    ),
    "loss [B, T]": Sound(
        _HEAD
        + """
    def f(logp, old_logp, ref_logp, advantages, mask, eps=0.2, beta=0.1):
        ratio = (logp - old_logp).exp()
        loss = -torch.min(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages)
        gap = ref_logp - logp
        loss = torch.where(mask, loss + beta * (gap.exp() - gap - 1), 0.0)
        return loss.sum() / mask.sum().clamp(min=1)
    """,
        {"stage": "policy-loss", "algorithm": "grpo"},
        {
            **_LOSS_FAULTS,
            "denominator": ("mask.sum().clamp(min=1)", "mask.numel()"),
            "mask": (
                "torch.where(mask, loss + beta * (gap.exp() - gap - 1), 0.0)",
                "loss + beta * (gap.exp() - gap - 1)",
            ),
            "order of KL and log": ("gap.exp() - gap - 1", "gap.exp() - gap.exp().log1p() - 1"),
            "direction of a KL": ("ref_logp - logp", "logp - ref_logp"),
            "shift": ("gap = ref_logp - logp", "gap = ref_logp.roll(1, 1) - logp"),
            "aggregation": (
                "loss.sum() / mask.sum().clamp(min=1)",
                "(loss.sum(1) / mask.sum(1).clamp(min=1).sqrt()).mean()",
            ),
        },
    ),
    "loss, advantages [B]": Sound(
        _HEAD
        + """
    def f(logp, old_logp, advantages, mask, eps=0.2):
        ratio, a = (logp - old_logp).exp(), advantages.unsqueeze(1)
        loss = torch.where(mask, -torch.min(ratio * a, ratio.clamp(1 - eps, 1 + eps) * a), 0.0)
        return (loss.sum(1) / mask.sum(1).clamp(min=1)).mean()
    """,
        {"stage": "policy-loss", "algorithm": "grpo"},
        {
            **_LOSS_FAULTS,
            "mask": (
                "torch.where(mask, -torch.min(ratio * a, ratio.clamp(1 - eps, 1 + eps) * a), 0.0)",
                "-torch.min(ratio * a, ratio.clamp(1 - eps, 1 + eps) * a)",
            ),
            "shift": ("(logp - old_logp)", "(logp - old_logp.roll(1, 1))"),
            "denominator": ("mask.sum(1).clamp(min=1)", "mask.sum().clamp(min=1)"),
            "aggregation": ("(loss.sum(1) / mask.sum(1).clamp(min=1)).mean()", "loss.sum(1).amax()"),
        },
    ),
    "advantage [B]": Sound(
        _HEAD
        + """
    def f(rewards, group):
        same = (group[:, None] == group[None, :]).float()
        n = same.sum(1)
        mean = same @ rewards / n
        var = (same * (rewards[None, :] - mean[:, None]) ** 2).sum(1) / (n - 1).clamp(min=1)
        return (rewards - mean) / (var.sqrt() + 1e-4)
    """,
        {"stage": "advantage", "algorithm": "grpo"},
        {
            "sign": ("(rewards - mean)", "(mean - rewards)"),
            "population of a statistic": ("mean = same @ rewards / n", "mean = rewards.mean().expand_as(n)"),
            "grouping": ("group[:, None] == group[None, :]", "group[:, None] <= group[None, :]"),
            "deviation": ("var.sqrt() + 1e-4", "var + 1e-4"),
            "denominator": ("same @ rewards / n", "same @ rewards / (n + 1)"),
            "shift": ("(rewards - mean)", "(rewards.roll(1) - mean)"),
        },
    ),
    "advantage [G, K]": Sound(
        _HEAD
        + """
    from jaxtyping import Float
    from torch import Tensor

    def f(rewards: Float[Tensor, "G K"]):
        return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    """,
        {"stage": "advantage", "algorithm": "grpo"},
        {
            "sign": ("rewards - rewards.mean(1, keepdim=True)", "rewards.mean(1, keepdim=True) - rewards"),
            "population of a statistic": ("rewards.std(1, keepdim=True)", "rewards.std()"),
            "grouping": ("rewards.mean(1, keepdim=True)", "rewards.mean(0, keepdim=True)"),
            "deviation": ("rewards.std(1, keepdim=True)", "rewards.var(1, keepdim=True)"),
        },
    ),
    "ragged": Sound(
        _HEAD
        + """
    def f(logp: list[torch.Tensor], old_logp: list[torch.Tensor], advantages: list[torch.Tensor], eps=0.2):
        losses = []
        for new, old, a in zip(logp, old_logp, advantages):
            ratio = (new - old).exp()
            losses.append(-torch.min(ratio * a, ratio.clamp(1 - eps, 1 + eps) * a))
        return torch.cat(losses).sum() / max(1, sum(len(x) for x in losses))
    """,
        {"stage": "policy-loss", "algorithm": "ppo"},
        {
            "sign": ("-torch.min(", "torch.min("),
            "clip": ("torch.min(", "torch.max("),
            "stopped gradient": ("(new - old).exp()", "(new - old).exp().detach()"),
            "denominator": ("max(1, sum(len(x) for x in losses))", "(1 + sum(len(x) for x in losses))"),
            "shift": ("(new - old)", "(new - old.roll(1))"),
        },
    ),
    "packed": Sound(
        _HEAD
        + """
    def f(logp, old_logp, advantages, loss_mask, cu_seqlens, eps=0.2):
        ratio = (logp - old_logp).exp()
        loss = -torch.min(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages) * loss_mask
        total, rows = 0.0, len(cu_seqlens) - 1
        for i in range(rows):
            s, e = int(cu_seqlens[i]), int(cu_seqlens[i + 1])
            total = total + loss[s:e].sum() / loss_mask[s:e].sum().clamp(min=1)
        return total / rows
    """,
        {"stage": "policy-loss", "algorithm": "ppo"},
        {
            **_LOSS_FAULTS,
            "mask": (" * loss_mask\n", "\n"),
            "denominator": ("loss_mask[s:e].sum().clamp(min=1)", "loss_mask.sum().clamp(min=1)"),
            "aggregation": ("total / rows", "total * rows"),
            "shift": ("loss[s:e]", "loss[max(0, s - 1):e - 1]"),
        },
    ),
    "dict": Sound(
        _HEAD
        + """
    def f(batch, eps=0.2):
        mask, a = batch["response_mask"].bool(), batch["advantages"]
        ratio = (batch["log_probs"] - batch["old_log_probs"]).exp()
        loss = -torch.min(ratio * a, ratio.clamp(1 - eps, 1 + eps) * a)
        return torch.where(mask, loss, 0.0).sum() / mask.sum().clamp(min=1)
    """,
        {"stage": "policy-loss", "algorithm": "ppo"},
        {
            "sign": ("-torch.min(", "torch.min("),
            "clip": ("torch.min(", "torch.max("),
            "stopped gradient": (".exp()", ".exp().detach()"),
            "denominator": ("mask.sum().clamp(min=1)", "mask.numel()"),
            "mask": ("torch.where(mask, loss, 0.0)", "loss"),
            "shift": ('batch["old_log_probs"]', 'batch["old_log_probs"].roll(1, 1)'),
        },
    ),
    "dataclass": Sound(
        _HEAD
        + """
    @dataclass
    class Samples:
        log_probs: torch.Tensor
        base_log_probs: torch.Tensor
        action_mask: torch.Tensor

    def f(samples: Samples):
        gap = samples.base_log_probs - samples.log_probs
        return torch.where(samples.action_mask.bool(), gap.exp() - gap - 1, 0.0)
    """,
        {"stage": "kl", "algorithm": "k3"},
        {
            "sign": ("gap.exp() - gap - 1", "1 + gap - gap.exp()"),
            "direction of a KL": (
                "samples.base_log_probs - samples.log_probs",
                "samples.log_probs - samples.base_log_probs",
            ),
            "order of KL and log": ("gap.exp() - gap - 1", "(gap.exp() - gap).log()"),
            "shift": ("gap.exp() -", "gap.roll(1, 1).exp() -"),
        },
    ),
    "config object": Sound(
        _HEAD
        + """
    @dataclass
    class Config:
        clip_low: float = 0.2
        clip_high: float = 0.3

    def f(logp, old_logp, advantages, mask, config: Config):
        ratio = (logp - old_logp).exp()
        cut = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
        loss = -torch.min(ratio * advantages, cut * advantages)
        return torch.where(mask, loss, 0.0).sum() / mask.sum().clamp(min=1)
    """,
        {"stage": "policy-loss", "algorithm": "ppo"},
        {
            **_LOSS_FAULTS,
            "clip range": ("1 + config.clip_high", "1 + config.clip_low"),
            "denominator": ("mask.sum().clamp(min=1)", "mask.numel()"),
            "mask": ("torch.where(mask, loss, 0.0)", "loss"),
        },
    ),
    "method": Sound(
        _HEAD
        + """
    class Trainer:
        gamma, lam = 0.9, 0.8

        def advantages(self, rewards, values, mask):
            out, later, after = [], 0.0, 0.0
            for t in reversed(range(rewards.shape[1])):
                delta = rewards[:, t] + self.gamma * after - values[:, t] * mask[:, t]
                later = delta + self.gamma * self.lam * later
                after = values[:, t] * mask[:, t]
                out.append(later)
            return torch.stack(out[::-1], 1) * mask

    f = Trainer().advantages
    """,
        {
            "stage": "advantage",
            "algorithm": "gae",
            "bind": {"rewards": "token_rewards"},
            "numbers": {"gamma": 0.9, "lambda": 0.8},
        },
        {
            "sign": ("- values[:, t] * mask[:, t]\n", "+ values[:, t] * mask[:, t]\n"),
            "denominator": ("self.gamma * self.lam * later", "self.lam * later"),
            "shift": ("delta = rewards[:, t] +", "delta = rewards[:, t - 1] +"),
        },
    ),
    "compute_loss": Sound(
        _HEAD
        + """
    class Trainer:
        epsilon = 0.2

        def compute_loss(self, model, inputs):
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
            mask = inputs["completion_mask"].bool()
            keep = inputs["completion_ids"].shape[1]
            logits = model(input_ids=ids).logits[:, :-1][:, -keep:]
            logp = logits.log_softmax(-1).gather(2, inputs["completion_ids"].unsqueeze(2)).squeeze(2)
            old_logp, a = inputs["old_per_token_logps"], inputs["advantages"].unsqueeze(1)
            ratio = (logp - old_logp).exp()
            loss = torch.where(mask, -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a), 0.0)
            return (loss.sum(1) / mask.sum(1).clamp(min=1)).mean()

    f = Trainer().compute_loss
    """,
        {"stage": "policy-loss", "algorithm": "grpo", "numbers": {"clip_low": 0.2, "clip_high": 0.2}},
        {
            **_LOSS_FAULTS,
            "shift": (".logits[:, :-1][:, -keep:]", ".logits[:, 1:][:, -keep:]"),
            "denominator": ("mask.sum(1).clamp(min=1)", "mask.sum().clamp(min=1)"),
            "mask": (
                "torch.where(mask, -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a), 0.0)",
                "-torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a)",
            ),
        },
    ),
}
