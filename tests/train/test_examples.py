"""The examples run as they say."""

from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.train.journal import lines
from rl_sentinel.train.loop import train
from training import kept_in, recipe

OWN = Path(__file__).parents[2] / "examples" / "own.py"


@pytest.mark.skipif(not OWN.exists(), reason="examples lie in the source tree, not in the wheel")
def test_environment_estimator_and_loss_of_ones_own(tmp_path: Path) -> None:
    """Named by their file; a policy that is warm started and trained on them gets better."""
    more: dict[str, Any] = {
        "steps": 40,
        "policy": {"hidden": 32},
        "warm": {"steps": 200, "rows": 32, "rate": 1e-2},
        "environment": {"name": f"{OWN}:Digits", "most": 3},
        "rollout": {"prompts": 8, "responses": 8, "tokens": 5},
        "estimator": {"name": f"{OWN}:best_of", "bonus": 0.1},
        "loss": {"name": f"{OWN}:plain", "aggregation": "token-mean"},
        "update": {"prompts": 8, "rate": 3e-3},
    }
    train(recipe(tmp_path, **more), kept=kept_in(tmp_path / "cache"))
    found = lines(tmp_path / "metrics.jsonl")
    assert found[0]["accuracy"] < 0.6
    assert sum(line["accuracy"] for line in found[-5:]) / 5 > found[0]["accuracy"] + 0.25
