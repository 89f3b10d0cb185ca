"""Held-out evaluation: pass@k without bias, the best checkpoint, and held-out data."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.config.settings import EvaluationSettings
from rl_sentinel.train.rollout.episodes import Episode
from rl_sentinel.train.rollout.interfaces import Outcome, Task
from rl_sentinel.train.run.checkpoint import load_newest
from rl_sentinel.train.run.evaluation import evaluation_metrics, pass_at_k
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.run.run_context import Callbacks
from training import folder_cache, recipe


@pytest.mark.parametrize(("correct", "samples", "k"), [(0, 3, 2), (1, 3, 2), (2, 5, 3), (3, 3, 1), (2, 4, 4)])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_response(correct: int, samples: int, k: int) -> None:
    right = [n < correct for n in range(samples)]
    subsets = [any(chosen) for chosen in itertools.combinations(right, k)]
    assert pass_at_k(correct, samples, k) == pytest.approx(sum(subsets) / len(subsets))


def _episode(group: int, *, correct: bool, greedy: bool = False, failure: str = "") -> Episode:
    outcome = Outcome(float(correct), correct, failure=failure)
    return Episode(group, group, Task("", ""), (1,), outcome=outcome, greedy=greedy)


def test_metrics_are_of_greedy_and_of_sampled_responses() -> None:
    """Task 0 is right once of two, task 1 never; a failed reward counts as wrong."""
    episodes = [_episode(0, correct=True, greedy=True), _episode(1, correct=False, greedy=True, failure="no")]
    episodes += [_episode(n, correct=n == 0 and first) for first in (True, False) for n in (0, 1)]
    metrics = evaluation_metrics(episodes, EvaluationSettings(every=1, responses=2, k=(1, 2)))
    assert metrics == {
        "accuracy": 0.5,
        "reward": 1.0,
        "failed": pytest.approx(1 / 6),
        "ended": 1.0,
        "pass@1": 0.25,
        "pass@2": 0.5,
    }


def test_best_checkpoint_is_kept(tmp_path: Path) -> None:
    """The best evaluation is not the last one, and its checkpoint is not among the newest."""
    more: dict[str, Any] = {
        "steps": 24,
        "rollout": {"prompts": 8, "responses": 8},
        "update": {"prompts": 8, "rate": 1e-1},
        "evaluation": {"every": 2, "tasks": 8, "best": "reward"},
        "checkpoint": {"every": 2},
    }
    reported: list[int] = []
    callbacks = Callbacks(evaluation=lambda step, _metrics: reported.append(step))
    train(recipe(tmp_path, **more), cache=folder_cache(tmp_path / "cache"), callbacks=callbacks)
    lines = read_metrics(tmp_path / "evaluation.jsonl")
    assert [line["step"] for line in lines] == reported == list(range(0, 25, 2))
    best = max(lines, key=lambda line: float(line["reward"]))
    state = load_newest(tmp_path / "best").state
    assert best["step"] > 0
    assert state is not None
    assert (state["step"], state["best"]) == (best["step"], best["reward"])
    assert len(list((tmp_path / "best").iterdir())) == 1


@pytest.mark.parametrize("staleness", [0, 1])
def test_evaluation_changes_no_metric_and_resumes(tmp_path: Path, staleness: int) -> None:
    more: dict[str, Any] = {"steps": 6, "checkpoint": {"every": 2}, "rollout": {"staleness": staleness}}
    if staleness:
        more["correction"] = {"weight": "token_weights", "bounds": ({"name": "truncated", "high": 2.0},)}
    evaluation = {"every": 3, "responses": 2, "k": (2,)}
    train(recipe(tmp_path / "a", **more), cache=folder_cache(tmp_path))
    train(recipe(tmp_path / "b", evaluation=evaluation, **more), cache=folder_cache(tmp_path))
    assert (tmp_path / "a/metrics.jsonl").read_bytes() == (tmp_path / "b/metrics.jsonl").read_bytes()
    before = (tmp_path / "b/evaluation.jsonl").read_bytes()
    for place in sorted((tmp_path / "b/checkpoints").iterdir())[-1:]:
        (place / "seal.json").unlink()
    with (tmp_path / "b/evaluation.jsonl").open("a") as file:
        file.write(json.dumps({"step": 9}))
    train(recipe(tmp_path / "b", evaluation=evaluation, **more), cache=folder_cache(tmp_path))
    assert (tmp_path / "b/evaluation.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"every": 1, "k": (2,)}, r"evaluation.k is \[2\], expected at most evaluation.responses, 0"),
        ({"every": 1, "best": "acuracy"}, "evaluation.best 'acuracy' is unknown, the nearest is 'accuracy'"),
        ({"every": 1, "environment": {"lettres": "a"}}, "environment.lettres is unknown, the nearest is 'letters'"),
    ],
)
def test_invalid_evaluation_is_one_line(table: dict[str, Any], line: str) -> None:
    with pytest.raises(SentinelError, match=line):
        select_components(recipe(evaluation=table))


def test_data_is_evaluated_on_other_data(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"prompt": "a", "answer": "a"}\n')
    table = {"name": "jsonl", "file": str(tmp_path / "train.jsonl"), "reward": "reward_functions:letters"}
    for same, value in (
        ({}, "is missing, expected held-out data: set"),
        ({"file": str(tmp_path / "train.jsonl")}, r"has the training data \(file\), expected held-out data: change"),
    ):
        with pytest.raises(SentinelError, match=f"evaluation.environment {value}"):
            select_components(recipe(environment=table, evaluation={"every": 1, "environment": same}))
    for wrong in ({"file": str(tmp_path / "none.jsonl")}, {"split": "test"}):
        with pytest.raises(SentinelError, match=f"^evaluation.environment.{next(iter(wrong))} "):
            select_components(recipe(environment=table, evaluation={"every": 1, "environment": wrong}))
