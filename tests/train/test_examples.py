"""The examples run as they say."""

import random
import re
from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.train.config.recipe import read
from rl_sentinel.train.config.selection import selected
from rl_sentinel.train.rollout.interfaces import Outcome
from rl_sentinel.train.run.journal import lines
from rl_sentinel.train.run.loop import train
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


@pytest.mark.skipif(not OWN.exists(), reason="examples lie in the source tree, not in the wheel")
def test_recipe_of_smollm2_is_one_and_judges() -> None:
    """Without the model, which is opt-in: what is chosen before it is loaded, and what an answer is worth."""
    wanted = read(OWN.parents[1] / "recipes" / "smollm2.toml", [f"environment.name={OWN.parent / 'smollm2.py'}:Sums"])
    environment = selected(wanted).environment
    task = environment.task(random.Random(0))
    total = sum(int(n) for n in re.findall(r"\d+", task.prompt.partition("=")[0]))
    assert environment.reply(task, [f"{total}"], ended=True) == Outcome(reward=1.0, correct=True)
    worth = {(f" {total}", False): 0.3, (f"It is {total}.", True): 0.5, ("no", True): 0.2, ("no", False): 0.0}
    for (text, ended), reward in worth.items():
        assert environment.reply(task, [text], ended=ended) == Outcome(reward=reward, correct=False)
