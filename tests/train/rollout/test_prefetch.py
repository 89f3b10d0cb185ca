"""Sampling ahead: which weights sample which batch, whatever the timing."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.train.rollout.prefetch import Ahead
from rl_sentinel.train.run.checkpoint import newest
from rl_sentinel.train.run.journal import lines
from rl_sentinel.train.run.loop import train
from training import kept_in, recipe

STALE: dict[str, Any] = {
    "steps": 7,
    "rollout": {"prompts": 2, "responses": 4, "tokens": 4, "staleness": 2},
    "correction": {"weight": "token_weights", "bounds": ({"name": "truncated", "high": 2.0},)},
    "checkpoint": {"every": 3, "keep": 9},
    "update": {"rate": 0.05},
}


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_each_step_has_its_version(staleness: int) -> None:
    """The newest that is as old as asked for; before there is one, the first."""
    ahead = Ahead(lambda step, _weights, version: [(step, version)], staleness=staleness)
    found: list[Any] = []
    for step in range(6):
        ahead.publish(None, version=step, until=6)
        found += ahead.taken(step)
    ahead.close()
    assert found == [(step, max(0, step - staleness)) for step in range(6)]
    later = [(6 + n, 6 + n - staleness, None) for n in range(staleness)]
    assert ahead.outstanding() == later  # noted for a longer run, and not sampled


def test_sampling_goes_on_while_the_policy_learns() -> None:
    """Batches are made before they are taken."""
    made = threading.Event()

    def sample(step: int, _weights: object, _version: int) -> list[Any]:
        if step == 1:
            made.set()
        return []

    ahead = Ahead(sample, staleness=1)
    ahead.publish(None, version=0, until=5)
    assert made.wait(10)
    assert [step for step, _, _ in ahead.outstanding()] == [0, 1]
    ahead.close()


def test_stale_run_is_counted_corrected_and_taken_up(tmp_path: Path) -> None:
    """Equal runs are equal; one that was ended goes on with the weights that its batches were being sampled by."""
    whole = tmp_path / "whole"
    train(recipe(whole, **STALE), kept=kept_in(tmp_path / "cache"))
    seen = lines(whole / "metrics.jsonl")
    assert [line["staleness"] for line in seen] == [0, 1, 2, 2, 2, 2, 2]
    assert seen[3]["kl"] > 1e-5
    found = newest(whole / "checkpoints").state
    assert found is not None
    assert [(step, version) for step, version, _ in found["ahead"]] == [(7, 5), (8, 6), (9, 7)]
    before = (whole / "metrics.jsonl").read_bytes()
    for left in sorted((whole / "checkpoints").iterdir())[1:]:
        (left / "seal.json").unlink()
    train(recipe(whole, **STALE), kept=kept_in(tmp_path / "cache"))
    assert (whole / "metrics.jsonl").read_bytes() == before
    again = newest(whole / "checkpoints").state
    assert again is not None
    assert all(torch.equal(w, again["weights"][n]) for n, w in found["weights"].items())
