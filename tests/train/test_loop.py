"""The loop: it learns, equal runs are equal to the byte, and a shuffled reward teaches nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.train.journal import lines
from rl_sentinel.train.loop import Watch, train
from training import kept_in, recipe


def _run(folder: Path, **more: Any) -> Path:
    train(recipe(folder, **more), kept=kept_in(folder / "cache"))
    return folder / "metrics.jsonl"


def test_equal_runs_have_equal_bytes(tmp_path: Path) -> None:
    """And another seed others; times are kept apart."""
    one, two = (_run(tmp_path / name, kl={"loss": 0.1}).read_bytes() for name in "ab")
    assert one == two
    assert one != _run(tmp_path / "c", kl={"loss": 0.1}, seed=1).read_bytes()
    told = json.loads(one.splitlines()[0])
    assert {"step", "reward", "accuracy", "kl", "clip_fraction", "entropy", "response_length"} <= set(told)
    assert not any("second" in key for key in told)
    assert "tokens_per_second" in lines(tmp_path / "a" / "timing.jsonl")[0]


@pytest.mark.parametrize("shuffled", [False, True])
def test_reward_rises_unless_it_is_shuffled(tmp_path: Path, shuffled: bool) -> None:  # noqa: FBT001 - a row of the table
    """From a policy of random weights, on an environment of one's own."""
    rollout = {"prompts": 8, "responses": 8, "shuffled_rewards": shuffled}
    found = lines(_run(tmp_path, steps=30, rollout=rollout, update={"prompts": 8, "rate": 1e-2}))
    first, last = (sum(line["reward"] for line in part) / 5 for part in (found[:5], found[-5:]))
    assert first < 0.1
    assert (last > 0.5) != shuffled, (first, last)


def test_watch_is_told_each_step_as_it_is_written(tmp_path: Path) -> None:
    """With its times, and the steps of the warm start before."""
    seen: list[Any] = []
    warmed: list[tuple[int, int]] = []
    watch = Watch(warming=lambda *n: warmed.append(n), step=lambda a, b: seen.append((a, b)))
    train(recipe(tmp_path, warm={"steps": 2, "rows": 4}), kept=kept_in(tmp_path / "cache"), watch=watch)
    assert warmed == [(1, 2), (2, 2)]
    assert [a for a, _ in seen] == lines(tmp_path / "metrics.jsonl")
    assert [b["step"] for _, b in seen] == [1, 2]
