"""The examples of the trainer run."""

import re
from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.train.config.recipe import load_recipe
from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.rollout.interfaces import Outcome
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from training import folder_cache, recipe

OWN = Path(__file__).parents[2] / "examples" / "own.py"


@pytest.mark.slow
@pytest.mark.skipif(not OWN.exists(), reason="examples lie in the source tree, not in the wheel")
def test_user_environment_estimator_and_loss(tmp_path: Path) -> None:
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
    train(recipe(tmp_path, **more), cache=folder_cache(tmp_path / "cache"))
    metrics = read_metrics(tmp_path / "metrics.jsonl")
    assert metrics[0]["accuracy"] < 0.6
    assert sum(line["accuracy"] for line in metrics[-5:]) / 5 > metrics[0]["accuracy"] + 0.25


@pytest.mark.skipif(not OWN.exists(), reason="examples lie in the source tree, not in the wheel")
def test_recipe_of_smollm2_is_valid() -> None:
    config = load_recipe(
        OWN.parents[1] / "recipes" / "smollm2.toml", [f"environment.name={OWN.parent / 'smollm2.py'}:Sums"]
    )
    selection = select_components(config)
    environment: Any = selection.environment
    task = environment.numbered_task(0, 0)
    question = task.prompt.partition("=")[0].rpartition("\n")[2].strip()
    total = sum(int(n) for n in question.split("+"))
    for text in (f"{total}", f"{question} = {total}.", f" {question}  =  {total}"):
        assert environment.reply(task, [text], ended=True) == Outcome(reward=1.0, correct=True), text
    rewards = {(f" {total}", False): 0.3, (f"It is {total}.", True): 0.5, (f"77 + 1 = {total}", True): 0.5}
    rewards |= {("no", True): 0.2, ("no", False): 0.0}
    for (text, ended), reward in rewards.items():
        assert environment.reply(task, [text], ended=ended) == Outcome(reward=reward, correct=False), text
    held_out: Any = selection.held_out
    assert config.evaluation is not None
    assert (environment.size, held_out.size) == (66, config.evaluation.tasks)
    prompts = [{e.numbered_task(n, 5).prompt for n in range(e.size)} for e in (environment, held_out)]
    assert [len(p) for p in prompts] == [66, 34]
    assert not prompts[0] & prompts[1]


DOCS = OWN.parents[1] / "docs" / "train.md"


@pytest.mark.skipif(not DOCS.exists(), reason="examples lie in the source tree, not in the wheel")
def test_own_data_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three files of the page: a recipe of at most 25 lines, functions of at most 15."""
    page = DOCS.read_text(encoding="utf-8")
    rows = re.search(r'^\{"question".*$', page, re.MULTILINE)
    reward, own = (re.search(rf"```\w+\n# {name}\n(.*?)```", page, re.DOTALL) for name in ("reward.py", "own.toml"))
    assert rows is not None
    assert reward is not None
    assert own is not None
    assert len([line for line in reward[1].splitlines() if line.strip()]) <= 15
    assert len([line for line in own[1].splitlines() if line.strip()]) <= 25
    files = {
        "train.jsonl": rows[0],
        "test.jsonl": rows[0].replace("3", "4"),
        "reward.py": reward[1],
        "own.toml": own[1],
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    environment = select_components(load_recipe(Path("own.toml"))).environment
    task = environment.numbered_task(0, 0)  # type: ignore[attr-defined]  # a data set has it
    right, wrong = (environment.reply(task, [text], ended=True) for text in ("It is 7.", "It is 8."))
    assert isinstance(right, Outcome)
    assert isinstance(wrong, Outcome)
    assert right.parts == pytest.approx((1.0, 0.96))
    assert right.correct
    assert not wrong.correct
    assert right.reward - wrong.reward == pytest.approx(1.0)
