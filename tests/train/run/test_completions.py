"""The responses that a run writes for people."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.run.completions import completion_lines
from rl_sentinel.train.run.journal import Journal, read_metrics
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.run.run_context import Callbacks
from training import folder_cache, recipe, sample_batch


@pytest.mark.parametrize("merged", [True, False])
def test_line_has_what_its_trajectory_got(merged: bool) -> None:
    rollout = {"prompts": 2, "responses": 16, "tokens": 6, "turns": 2, "merged": merged}
    _, _, episodes, batch, _ = sample_batch(recipe(environment={"name": "training:TwoTurns"}, rollout=rollout))
    lines = completion_lines(episodes, batch, parts=(), step=7)
    rewards = torch.tensor([line["reward"] for line in lines]).view(2, 16)
    advantages = torch.tensor([line["advantage"] for line in lines]).view(2, 16)
    torch.testing.assert_close(advantages, rewards - rewards.mean(dim=1, keepdim=True))
    assert advantages.abs().max() > 0
    assert [line["completion"] for line in lines] == ["|".join(e.responses) for e in episodes]
    assert {(line["step"], line["prompt"]) for line in lines} == {(7, "ab")}


def test_every_second_step_is_written_and_a_few_are_shown(tmp_path: Path) -> None:
    shown: list[Any] = []
    settings = recipe(tmp_path, steps=4, completions={"every": 2, "show": 3})
    train(settings, cache=folder_cache(tmp_path / "cache"), callbacks=Callbacks(completions=shown.append))
    lines = [json.loads(line) for line in (tmp_path / "completions.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2] * 8 + [4] * 8
    assert [len(x) for x in shown] == [0, 3, 0, 3]
    assert shown[1] == lines[0:6:2]
    quiet = recipe(tmp_path / "quiet", completions={"every": 0})
    train(quiet, cache=folder_cache(tmp_path / "cache"))
    assert (tmp_path / "quiet/completions.jsonl").read_bytes() == b""


def test_failed_rewards_do_not_train_and_are_reported(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"prompt": c, "answer": c}) + "\n" for c in "ab")
    (tmp_path / "data.jsonl").write_text(rows)
    table = {"name": "jsonl", "file": str(tmp_path / "data.jsonl"), "reward": "reward_functions:fails_on_b"}
    messages: list[str] = []
    settings = recipe(tmp_path / "run", environment=table, steps=1)
    train(settings, cache=folder_cache(tmp_path), callbacks=Callbacks(message=messages.append))
    assert len(messages) == 1
    assert messages[0].startswith(
        "step 1: 4 of 8 responses have no reward and do not train, first failure: environment.r"
    )
    assert "\n" not in messages[0]
    metrics = read_metrics(tmp_path / "run/metrics.jsonl")[0]
    assert (metrics["failed"], metrics["reward"]) == (0.5, 1.0)
    lines = [json.loads(line) for line in (tmp_path / "run/completions.jsonl").read_text().splitlines()]
    assert all((line["advantage"] is None) == ("failure" in line) == (line["prompt"] == "b") for line in lines)
    assert {(line["prompt"], line["reward"], str(line["rewards"])) for line in lines} == {
        ("a", 1.0, "{'fails_on_b': 1.0}"),
        ("b", None, "None"),
    }
    bad = recipe(tmp_path / "bad", environment=table | {"reward": "reward_functions:raises"})
    with pytest.raises(SentinelError, match=r"^step 1: 8 of 8 responses have no reward, first failure: .*KeyError"):
        train(bad, cache=folder_cache(tmp_path))


@pytest.mark.parametrize("name", ["completions", "evaluation"])
def test_foreign_file_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.jsonl").write_text("mine")
    with pytest.raises(SentinelError, match=r"has files of a run but no recipe.json: name another"):
        Journal.open(recipe(tmp_path))
    assert (tmp_path / f"{name}.jsonl").read_text() == "mine"
