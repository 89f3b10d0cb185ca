"""Correct advantages of GRPO and Dr. GRPO on dicts, objects, rows, lists and arrays."""

from typing import Any

STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo list of dicts": (
        """
def f(samples: list[dict]):
    table = {}
    for row in samples:
        table.setdefault(row["group"], []).append(float(row["reward"]))
    result = []
    for row in samples:
        peers = table[row["group"]]
        center = sum(peers) / len(peers)
        sigma = (sum((p - center) ** 2 for p in peers) / len(peers)) ** 0.5
        result.append((float(row["reward"]) - center) / (sigma + 1e-6))
    return torch.tensor(result)
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo list of dicts writes back": (
        """
def f(samples: list[dict]):
    import numpy as np
    from collections import defaultdict
    groups = defaultdict(list)
    for i, row in enumerate(samples):
        groups[row["uid"]].append(i)
    adv = [0.0] * len(samples)
    for rows in groups.values():
        r = np.array([samples[i]["score"] for i in rows], dtype=float)
        a = (r - r.mean()) / (r.std() + 1e-8)
        for i, v in zip(rows, a):
            adv[i] = float(v)
    return adv
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo dataclass config k": (
        """
from dataclasses import dataclass

@dataclass
class GRPOArgs:
    group_size: int = 4
    scale_rewards: bool = True
    eps: float = 1e-4

def f(rewards, args: GRPOArgs):
    g = rewards.unflatten(0, (-1, args.group_size))
    a = g - g.mean(dim=1, keepdim=True)
    if args.scale_rewards:
        a = a / (g.std(dim=1, keepdim=True) + args.eps)
    return a.flatten()
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo numpy uids, token level": (
        """
import numpy as np

def f(token_level_scores, response_mask, uids):
    score = token_level_scores.sum(-1)
    flat = score.numpy().astype(np.float64)
    uids = np.asarray(uids)
    a = np.zeros_like(flat)
    for u in np.unique(uids):
        at = np.where(uids == u)[0]
        a[at] = (flat[at] - flat[at].mean()) / (flat[at].std(ddof=1 if len(at) > 1 else 0) + 1e-6)
    return torch.from_numpy(a).float().unsqueeze(1) * response_mask
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo masked float rows": (
        """
def f(outcome_rewards, loss_mask, group_idx):
    loss_mask = loss_mask.float()
    adv = torch.zeros_like(outcome_rewards)
    for gi in range(int(group_idx.max()) + 1):
        mine = group_idx == gi
        if not mine.any():
            continue
        r = outcome_rewards[mine]
        adv[mine] = (r - r.mean()) / (r.std(correction=0) + 1e-5)
    return adv.unsqueeze(-1).expand(-1, loss_mask.size(1)) * loss_mask
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo namedtuple": (
        """
from typing import NamedTuple
class Batch(NamedTuple):
    rewards: torch.Tensor
    group_ids: torch.Tensor
    response_mask: torch.Tensor
def f(batch: Batch):
    adv = torch.zeros_like(batch.rewards)
    for g in set(batch.group_ids.tolist()):
        m = batch.group_ids == g
        r = batch.rewards[m]
        adv[m] = (r - r.mean()) / (r.std(correction=0) + 1e-6)
    return adv[:, None] * batch.response_mask.float()
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "grpo ragged out": (
        """
def f(rewards: list[float], prompt_ids: list[int], lengths: list[int]):
    out = []
    for r, p, n in zip(rewards, prompt_ids, lengths):
        g = torch.tensor([x for x, q in zip(rewards, prompt_ids) if q == p])
        a = (r - g.mean()) / (g.std(unbiased=False) + 1e-6)
        out.append(a.repeat(n))
    return out
""",
        {"bind": {"prompt_ids": "group[list]"}, "stage": "advantage", "algorithm": "grpo"},
    ),
    "dr grpo numpy G K": (
        """
import numpy as np
def f(rewards: np.ndarray, n_samples_per_prompt: int) -> np.ndarray:
    m = rewards.reshape(-1, n_samples_per_prompt)
    return (m - m.mean(axis=-1, keepdims=True)).ravel()
""",
        {"stage": "advantage", "algorithm": "dr_grpo"},
    ),
    "rows: dataclass list": (
        """
from dataclasses import dataclass
@dataclass
class Sample:
    reward: float
    group_index: int
    response_length: int
def f(samples: list[Sample]) -> list[float]:
    rewards = torch.tensor([x.reward for x in samples], dtype=torch.float)
    ids = torch.tensor([x.group_index for x in samples])
    out = torch.zeros_like(rewards)
    for g in ids.unique():
        pick = ids == g
        out[pick] = (rewards[pick] - rewards[pick].mean()) / (rewards[pick].std(correction=0) + 1e-6)
    return out.tolist()
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "rows: dicts written and returned": (
        """
def f(batch):
    groups = {}
    for item in batch:
        groups.setdefault(item["prompt_id"], []).append(item)
    for items in groups.values():
        r = [i["reward"] for i in items]
        mean = sum(r) / len(r)
        std = (sum((x - mean) ** 2 for x in r) / len(r)) ** 0.5
        for i in items:
            i["advantage"] = (i["reward"] - mean) / (std + 1e-4)
    return batch
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "future annotations": (
        """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Rollout:
    rewards: torch.Tensor
    group_ids: torch.Tensor
    mask: torch.Tensor

def f(rollout: Rollout, eps: float = 1e-6) -> torch.Tensor:
    adv = torch.zeros_like(rollout.rewards)
    for g in rollout.group_ids.unique():
        idx = rollout.group_ids == g
        r = rollout.rewards[idx]
        adv[idx] = (r - r.mean()) / (r.std(correction=0) + eps)
    return adv[:, None] * rollout.mask
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "List typing alias": (
        """
from typing import List
def f(rewards: List[float], group_ids: List[int], eps: float = 1e-6) -> List[float]:
    out = []
    for r, g in zip(rewards, group_ids):
        x = torch.tensor([b for b, h in zip(rewards, group_ids) if h == g])
        out.append(((r - x.mean()) / (x.std(unbiased=False) + eps)).item())
    return out
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "tensordict-like class": (
        """
class Batch:
    def __init__(self, rewards, group_ids, mask):
        self.rewards, self.group_ids, self.mask = rewards, group_ids, mask
def f(b: Batch):
    out = torch.zeros_like(b.rewards)
    for g in b.group_ids.unique():
        k = b.group_ids == g
        out[k] = b.rewards[k] - b.rewards[k].mean()
    return out[:, None] * b.mask
""",
        {"stage": "advantage", "algorithm": "Dr. GRPO"},
    ),
    "grpo per-prompt list of tensors": (
        '''
def f(rewards: list[torch.Tensor]):
    """One tensor of rewards per prompt."""
    return [(r - r.mean()) / (r.std(correction=0) + 1e-6) for r in rewards]
''',
        {"stage": "advantage", "algorithm": "grpo"},
    ),
    "lists per prompt": (
        """
def f(rewards: list[list[float]]) -> list[list[float]]:
    out = []
    for group in rewards:
        m = sum(group) / len(group)
        sd = (sum((x - m) ** 2 for x in group) / len(group)) ** 0.5
        out.append([(x - m) / (sd + 1e-6) for x in group])
    return out
""",
        {"stage": "advantage", "algorithm": "grpo"},
    ),
}
