"""A whole framework in a few lines, on disk, for tests of the audit."""

from pathlib import Path

MODULE = '''
import torch

ADV_ESTIMATOR_REGISTRY = {}


def compute_grpo_outcome_advantage(token_level_rewards, response_mask, index):
    """Group mean over all rows."""
    score = token_level_rewards.sum(-1)
    out = torch.zeros_like(score)
    for name in set(index.tolist()):
        rows = torch.tensor([i == name for i in index.tolist()])
        out[rows] = score[rows] - score[rows].mean()
    out = out.unsqueeze(-1) * response_mask
    return out, out


def compute_gae_advantage_return(token_level_rewards, values, response_mask, gamma, lam):
    """Undiscounted sum of rewards to go, minus the value."""
    live = torch.where(response_mask.bool(), token_level_rewards, 0.0)
    returns = live.flip(-1).cumsum(-1).flip(-1)
    return torch.where(response_mask.bool(), returns - values, 0.0), returns


ADV_ESTIMATOR_REGISTRY["grpo"] = compute_grpo_outcome_advantage
ADV_ESTIMATOR_REGISTRY["gae"] = compute_gae_advantage_return
'''


def checkout(folder: Path, module: str = MODULE) -> Path:
    """A folder that passes for a checkout of a framework with two estimators."""
    home = folder / "verl" / "trainer" / "ppo"
    home.mkdir(parents=True)
    for package in (folder / "verl", folder / "verl" / "trainer", home):
        (package / "__init__.py").write_text("", encoding="utf-8")
    (home / "core_algos.py").write_text(module, encoding="utf-8")
    return folder
