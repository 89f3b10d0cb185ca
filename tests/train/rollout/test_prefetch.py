"""Prefetching: which weights sample which batch, whatever the timing."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.train.rollout.prefetch import Prefetcher
from rl_sentinel.train.run.checkpoint import load_newest
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from training import folder_cache, recipe

STALE: dict[str, Any] = {
    "steps": 7,
    "rollout": {"prompts": 2, "responses": 4, "tokens": 4, "staleness": 2},
    "correction": {"weight": "token_weights", "bounds": ({"name": "truncated", "high": 2.0},)},
    "checkpoint": {"every": 3, "keep": 9},
    "update": {"rate": 0.05},
}


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_each_step_has_its_version(staleness: int) -> None:
    prefetcher = Prefetcher(lambda step, _weights, version: [(step, version)], staleness=staleness)
    batches: list[Any] = []
    for step in range(6):
        prefetcher.publish(None, version=step, until=6)
        batches += prefetcher.take(step)
    prefetcher.close()
    assert batches == [(step, max(0, step - staleness)) for step in range(6)]
    later = [(6 + n, 6 + n - staleness, None) for n in range(staleness)]
    assert prefetcher.pending() == later  # recorded for an extended run, and not sampled


def test_sampling_runs_in_the_background() -> None:
    sample_episodes = threading.Event()

    def sample(step: int, _weights: object, _version: int) -> list[Any]:
        if step == 1:
            sample_episodes.set()
        return []

    prefetcher = Prefetcher(sample, staleness=1)
    prefetcher.publish(None, version=0, until=5)
    assert sample_episodes.wait(10)
    assert [step for step, _, _ in prefetcher.pending()] == [0, 1]
    prefetcher.close()


def test_stale_run_is_corrected_and_resumed(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    train(recipe(whole, **STALE), cache=folder_cache(tmp_path / "cache"))
    metrics = read_metrics(whole / "metrics.jsonl")
    assert [line["staleness"] for line in metrics] == [0, 1, 2, 2, 2, 2, 2]
    assert metrics[3]["kl"] > 1e-5
    batches = load_newest(whole / "checkpoints").state
    assert batches is not None
    assert [(step, version) for step, version, _ in batches["ahead"]] == [(7, 5), (8, 6), (9, 7)]
    before = (whole / "metrics.jsonl").read_bytes()
    for newer in sorted((whole / "checkpoints").iterdir())[1:]:
        (newer / "seal.json").unlink()
    train(recipe(whole, **STALE), cache=folder_cache(tmp_path / "cache"))
    assert (whole / "metrics.jsonl").read_bytes() == before
    resumed = load_newest(whole / "checkpoints").state
    assert resumed is not None
    assert all(torch.equal(w, resumed["weights"][n]) for n, w in batches["weights"].items())
