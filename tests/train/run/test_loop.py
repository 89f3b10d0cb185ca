"""The loop learns, equal runs are equal to the byte, and any interruption resumes to the same bytes."""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.selection import Selection
from rl_sentinel.train.model.policy import init_policy
from rl_sentinel.train.run.checkpoint import load_newest
from rl_sentinel.train.run.distributed import Ranks
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.run.run_context import Callbacks
from training import COMPONENTS, component_name, folder_cache, recipe

MEAN = {"aggregation": "token-mean"}
CLIPS = {"clip_low": 0.2, "clip_high": 0.2, **MEAN}
DRAWN = {"name": "drawn_between", "low": -1.0, "high": 1.0, "share": 0.4}


def _run(folder: Path, **more: Any) -> Path:
    train(recipe(folder, **more), cache=folder_cache(folder / "cache"))
    return folder / "metrics.jsonl"


def test_equal_runs_have_equal_bytes(tmp_path: Path) -> None:
    one, two = (_run(tmp_path / name, kl={"loss": 0.1}).read_bytes() for name in "ab")
    assert one == two
    assert one != _run(tmp_path / "c", kl={"loss": 0.1}, seed=1).read_bytes()
    first = json.loads(one.splitlines()[0])
    assert {"step", "reward", "accuracy", "kl", "clip_fraction", "entropy", "response_length"} <= set(first)
    assert not any("second" in key for key in first)
    assert "tokens_per_second" in read_metrics(tmp_path / "a" / "timing.jsonl")[0]


def test_loss_whose_parts_do_not_add_up_needs_one_process(tmp_path: Path) -> None:
    config = recipe(tmp_path, loss={"name": "training:not_additive", "aggregation": "token-mean"})
    told = (
        r"^2 processes share each mini-batch, expected one with loss training:not_additive: .* train with one process$"
    )
    with pytest.raises(SentinelError, match=told):
        train(config, cache=folder_cache(tmp_path / "cache"), ranks=Ranks(rank=0, size=2))


def test_missing_transformers_is_reported_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder is made, so that the same command runs after the installation."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SentinelError, match=r"^policy.load needs transformers, which cannot be imported .*: pip "):
        _run(tmp_path / "run", policy={"load": "somewhere"}, warm=None)
    assert not (tmp_path / "run").exists()


def test_bf16_learns_and_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    """The reward rises in bfloat16 too."""
    more: dict[str, Any] = {
        "steps": 30,
        "policy": {"precision": "bf16"},
        "rollout": {"prompts": 8, "responses": 8},
        "update": {"prompts": 8, "rate": 1e-2},
        "checkpoint": {"every": 20},
    }
    path = _run(tmp_path, **more)
    whole, metrics = path.read_bytes(), read_metrics(path)
    assert sum(line["reward"] for line in metrics[-5:]) / 5 > 0.5
    assert all(0 <= line["kl"] < 1e-4 for line in metrics)  # sampling token by token may round differently
    (max((tmp_path / "checkpoints").iterdir()) / "seal.json").unlink()
    assert _run(tmp_path, **more).read_bytes() == whole


@pytest.mark.parametrize("shuffled", [False, True])
def test_reward_rises_unless_it_is_shuffled(tmp_path: Path, shuffled: bool) -> None:
    rollout = {"prompts": 8, "responses": 8, "shuffled_rewards": shuffled}
    metrics = read_metrics(_run(tmp_path, steps=30, rollout=rollout, update={"prompts": 8, "rate": 1e-2}))
    first, last = (sum(line["reward"] for line in part) / 5 for part in (metrics[:5], metrics[-5:]))
    assert first < 0.1
    assert (last > 0.5) != shuffled, (first, last)


@pytest.mark.parametrize("choice", COMPONENTS, ids=component_name)
def test_every_estimator_and_loss_learns(tmp_path: Path, choice: dict[str, Any]) -> None:
    """Two mini-batches, two epochs, so that the policies differ; all metrics are finite."""
    update = {"prompts": 2, "epochs": 2, "rate": 1e-2}
    metrics = read_metrics(_run(tmp_path, steps=4, rollout={"prompts": 4, "responses": 8}, update=update, **choice))
    assert len(metrics) == 4
    assert all(math.isfinite(number) for line in metrics for number in line.values())
    assert any(line["gradient_norm"] > 0 for line in metrics)


#: Components that read a column of their own, and turns in one row.
COLUMNS: dict[str, dict[str, Any]] = {
    "drawn": {"loss": {"name": "clip_cov", **CLIPS, "chosen": DRAWN}},
    "largest": {"loss": {"name": "kl_cov", **MEAN, "penalty": 1.0, "chosen": {"name": "largest", "share": 0.3}}},
    "greedy": {"estimator": {"name": "remax"}},
    "parts": {
        "estimator": {"name": "gdpo", "weight": (1.0, 0.5), "epsilon": 1e-6},
        "environment": {"name": "training:TwoParts"},
    },
    "squares": {"estimator": {"name": "optimal_token_baseline"}},
    "turns": {
        "estimator": {"name": "turn_level_gae", "discount": 1.0, "decay": 0.9},
        "critic": {"rate": 1e-2},
        "environment": {"name": "training:TwoTurns"},
        "rollout": {"prompts": 4, "responses": 4, "turns": 2},
    },
    "loss of turns": {
        "loss": {"name": "training:turn_weighted_loss", **MEAN},
        "environment": {"name": "training:TwoTurns"},
        "rollout": {"prompts": 4, "responses": 4, "turns": 2},
    },
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.on_cpu
def test_run_with_every_column_resumes_to_the_same_bytes(tmp_path: Path, name: str) -> None:
    settings: dict[str, Any] = {
        "steps": 4,
        "rollout": {"prompts": 4, "responses": 4},
        "update": {"prompts": 2, "epochs": 2, "rate": 1e-2},
        "checkpoint": {"every": 2},
    }
    more = settings | COLUMNS[name]
    path = _run(tmp_path, **more)
    whole, metrics, weights = path.read_bytes(), read_metrics(path), _weights(tmp_path)
    assert all(math.isfinite(number) for line in metrics for number in line.values())
    start = init_policy(recipe(**more)).model.state_dict()
    assert max(float((w - start[n]).abs().max()) for n, w in weights.items()) > 1e-3
    (max((tmp_path / "checkpoints").iterdir()) / "seal.json").unlink()
    assert _run(tmp_path, **more).read_bytes() == whole
    assert all(torch.equal(w, weights[n]) for n, w in _weights(tmp_path).items())


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    metrics = load_newest(folder / "checkpoints").state
    assert metrics is not None
    weights: dict[str, torch.Tensor] = metrics["weights"]
    return weights


def test_greedy_responses_are_not_in_the_metrics(tmp_path: Path) -> None:
    first = [read_metrics(_run(tmp_path / n, **more))[0] for n, more in (("a", {}), ("b", COLUMNS["greedy"]))]
    keys = ("reward", "accuracy", "response_length", "entropy")
    assert [first[0][key] for key in keys] == [first[1][key] for key in keys]


def test_callbacks_get_each_step_as_it_is_logged(tmp_path: Path) -> None:
    steps: list[Any] = []
    warm_steps: list[tuple[int, int]] = []
    callbacks = Callbacks(warm_start=lambda *n: warm_steps.append(n), step=lambda a, b: steps.append((a, b)))
    train(recipe(tmp_path, warm={"steps": 2, "rows": 4}), cache=folder_cache(tmp_path / "cache"), callbacks=callbacks)
    assert warm_steps == [(1, 2), (2, 2)]
    assert [a for a, _ in steps] == read_metrics(tmp_path / "metrics.jsonl")
    assert [b["step"] for _, b in steps] == [1, 2]


def test_folder_is_announced_before_a_model_is_built_and_an_error_there_stops_the_run(tmp_path: Path) -> None:
    def refuse(folder: Path, selection: Selection) -> None:
        announced.append((folder, selection.environment.task(random.Random(0)).answer in "ab"))
        raise SentinelError("not this recipe")

    announced: list[tuple[Path, bool]] = []
    with pytest.raises(SentinelError, match="not this recipe"):
        train(recipe(tmp_path / "run"), cache=folder_cache(tmp_path), callbacks=Callbacks(opened=refuse))
    assert announced == [(tmp_path / "run", True)]
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    _run(tmp_path / "run")  # the folder is free again


class Crash(BaseException):
    """The process ends."""


@pytest.mark.slow
def test_run_that_ends_anywhere_resumes_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more: dict[str, Any] = {
        "steps": 7,
        "checkpoint": {"every": 2},
        "kl": {"reward": 0.1, "target": 0.1, "horizon": 90.0},
    }
    whole = _run(tmp_path / "whole", **more).read_bytes()
    calls, crashes = 0, 0

    def crash_at(name: str, original: Any) -> None:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls, crashes
            calls += 1
            if calls % 3 == 0 and random.Random(calls).random() < 0.5:
                crashes += 1
                raise Crash
            return original(*args, **kwargs)

        monkeypatch.setattr(name, call)

    crash_at("os.fsync", os.fsync)
    crash_at("pathlib.Path.rename", Path.rename)
    crash_at("pathlib.Path.replace", Path.replace)
    crash_at("torch.save", torch.save)
    while True:
        try:
            metrics = _run(tmp_path / "again", **more).read_bytes()
        except Crash:
            continue
        break
    assert crashes >= 3
    assert metrics == whole


@pytest.mark.slow
def test_killed_process_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    more: dict[str, Any] = {"steps": 40, "checkpoint": {"every": 3}}
    whole = _run(tmp_path / "whole", **more).read_bytes()
    folder, source = tmp_path / "again", random.Random(5)
    code = (
        "import sys; from pathlib import Path; from training import recipe, folder_cache; "
        "from rl_sentinel.train.run.loop import train; "
        f"train(recipe(sys.argv[1], **{more}), cache=folder_cache(Path(sys.argv[1]) / 'cache'))"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", code, str(folder)], env=env)
    end = time.monotonic() + 60
    while not (folder / "metrics.jsonl").exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(source.random() * 0.2)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert _run(folder, **more).read_bytes() == whole


def test_damaged_checkpoint_is_reported_and_the_previous_one_used(tmp_path: Path) -> None:
    more: dict[str, Any] = {"steps": 6, "checkpoint": {"every": 2}}
    whole = _run(tmp_path, **more).read_bytes()
    newest = max((tmp_path / "checkpoints").iterdir())
    (newest / "state.pt").write_bytes(b"")
    messages: list[str] = []
    train(
        recipe(tmp_path, **more), cache=folder_cache(tmp_path / "cache"), callbacks=Callbacks(message=messages.append)
    )
    assert messages[0].startswith(f"checkpoint {newest} is damaged")
    assert messages[1] == "resuming after step 4 of 6"
    assert (tmp_path / "metrics.jsonl").read_bytes() == whole


@pytest.mark.parametrize("staleness", [0, 2])
def test_run_is_extended_to_the_same_bytes(tmp_path: Path, staleness: int) -> None:
    more: dict[str, Any] = {"checkpoint": {"every": 2}, "rollout": {"staleness": staleness}}
    if staleness:
        more["correction"] = {"weight": "token_weights", "bounds": ({"name": "truncated", "high": 2.0},)}
    whole = _run(tmp_path / "whole", steps=7, **more).read_bytes()
    _run(tmp_path / "again", steps=3, **more)
    assert _run(tmp_path / "again", steps=7, **more).read_bytes() == whole


def test_steps_without_a_checkpoint_are_repeated(tmp_path: Path) -> None:
    whole = _run(tmp_path).read_bytes()
    shutil.rmtree(tmp_path / "checkpoints")
    messages: list[str] = []
    train(recipe(tmp_path), cache=folder_cache(tmp_path / "cache"), callbacks=Callbacks(message=messages.append))
    assert messages == [f"no intact checkpoint in {tmp_path}/checkpoints: repeating all 2 steps"]
    assert (tmp_path / "metrics.jsonl").read_bytes() == whole


def test_checkpoint_is_bound_to_its_recipe(tmp_path: Path) -> None:
    _run(tmp_path)
    place = tmp_path / "recipe.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"seed": 41}))
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.jsonl")}
    with pytest.raises(
        SentinelError, match=r"is of another recipe than recipe.json beside it, expected the same: name"
    ):
        _run(tmp_path, seed=41)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.jsonl")} == before


def test_failed_start_leaves_its_folder_to_the_next_command(tmp_path: Path) -> None:
    with pytest.raises(SentinelError, match="expected one address"):
        _run(tmp_path, rollout={"engine": "http", "url": "nowhere"})
    assert len(read_metrics(_run(tmp_path, seed=3))) == 2
