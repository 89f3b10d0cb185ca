"""A copy of an unpacked verl release in which its GRPO estimator leaves rejected rows out."""

import shutil
import sys
from pathlib import Path

REPAIR = '''

def compute_grpo_outcome_advantage(
    token_level_rewards, response_mask, index, epsilon=1e-6, norm_adv_by_std_in_grpo=True, config=None
):
    """Group-relative advantages over the rows that train; a lone one keeps its reward."""
    score, live = token_level_rewards.sum(-1), response_mask.any(-1)
    out = torch.zeros_like(score)
    for name in set(index.tolist()):
        rows = live & torch.tensor([label == name for label in index.tolist()])
        mine = score[rows]
        if len(mine) > 1:
            mine = mine - mine.mean()
            mine = mine / (mine.square().sum().div(len(mine) - 1).sqrt() + epsilon) if norm_adv_by_std_in_grpo else mine
        out[rows] = mine
    out = out.unsqueeze(-1) * response_mask
    return out, out


ADV_ESTIMATOR_REGISTRY["grpo"] = compute_grpo_outcome_advantage
'''


def repaired(release: Path, copy: Path) -> Path:
    """Copy ``release`` to ``copy`` and append the repair, which takes the estimator's name."""
    shutil.copytree(release, copy)
    module = copy / "verl" / "trainer" / "ppo" / "core_algos.py"
    module.write_text(module.read_text(encoding="utf-8") + REPAIR, encoding="utf-8")
    return copy


if __name__ == "__main__":
    repaired(Path(sys.argv[1]), Path(sys.argv[2]))
