"""The remedies in the real package: registered, called through verl's own dispatch, and deaf to rejected rows.

python scripts/remedies.py verl==0.9.1
"""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rl_sentinel.audit.overlay import overlays
from rl_sentinel.audit.source import source
from rl_sentinel.audit.target import named
from rl_sentinel.frameworks.loading import load
from rl_sentinel.frameworks.verl import FRAMEWORK


def _moves(trainer: Any, name: str, rejected: float) -> torch.Tensor:  # noqa: ANN401 - verl's module
    """Advantages by verl's dispatch, of three responses of which the last is rejected with this reward."""
    mask = torch.tensor([[1, 1], [1, 0], [0, 0]])
    reward = torch.tensor([[0.0, 1.0], [0.25, 0.0], [rejected, 0.0]])
    batch = {"token_level_rewards": reward, "response_mask": mask}
    data = SimpleNamespace(batch=batch, non_tensor_batch={"uid": np.array(["a", "a", "a"], dtype=object)})
    trainer.compute_advantage(data, adv_estimator=name, config={"norm_adv_by_std_in_grpo": True})
    return batch["advantages"]


def main() -> None:
    """Say for each remedy, and for the estimator that it stands in for, whether the rejected row is heard."""
    target = named(sys.argv[1])
    found = source(target)
    load(FRAMEWORK, Path(found.root), found.version, [Path(p) for p in overlays(FRAMEWORK, found.version)])
    remedies = importlib.import_module("rl_sentinel.remedies.verl")
    trainer = importlib.import_module("verl.trainer.ppo.ray_trainer")
    wrong = []
    for name in remedies.ESTIMATORS:
        heard = {
            n: not torch.equal(_moves(trainer, n, 0.0), _moves(trainer, n, 9.0)) for n in (name, f"sentinel_{name}")
        }
        print(", ".join(f"{n} {'hears' if x else 'does not hear'} the rejected row" for n, x in heard.items()))  # noqa: T201
        wrong += [n for n, x in heard.items() if x and n.startswith("sentinel_")]
    sys.exit(", ".join(wrong))


if __name__ == "__main__":
    main()
