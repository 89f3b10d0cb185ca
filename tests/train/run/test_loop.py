"""The loop: it learns, equal runs are equal to the byte, and a shuffled reward teaches nothing."""

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
from rl_sentinel.train.model.policy import from_scratch
from rl_sentinel.train.run.checkpoint import newest
from rl_sentinel.train.run.journal import lines
from rl_sentinel.train.run.loop import Watch, train
from training import CHOICES, kept_in, name_of, recipe

MEAN = {"aggregation": "token-mean"}
CLIPS = {"clip_low": 0.2, "clip_high": 0.2, **MEAN}
DRAWN = {"name": "drawn_between", "low": -1.0, "high": 1.0, "share": 0.4}


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


def test_what_loads_a_policy_is_asked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed no folder is made, so that the same command runs once it is."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SentinelError, match=r"^policy.load needs transformers, which is not installed: pip install"):
        _run(tmp_path / "run", policy={"load": "somewhere"}, warm=None)
    assert not (tmp_path / "run").exists()


def test_bf16_learns_and_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    """The reward rises in bfloat16 too; a run that is taken up from its checkpoint has the same bytes."""
    more: dict[str, Any] = {
        "steps": 30,
        "policy": {"precision": "bf16"},
        "rollout": {"prompts": 8, "responses": 8},
        "update": {"prompts": 8, "rate": 1e-2},
        "checkpoint": {"every": 20},
    }
    path = _run(tmp_path, **more)
    whole, found = path.read_bytes(), lines(path)
    assert sum(line["reward"] for line in found[-5:]) / 5 > 0.5
    assert any(line["kl"] > 0 for line in found)  # what reads a response at once rounds otherwise than what says it
    (max((tmp_path / "checkpoints").iterdir()) / "seal.json").unlink()
    assert _run(tmp_path, **more).read_bytes() == whole


@pytest.mark.parametrize("shuffled", [False, True])
def test_reward_rises_unless_it_is_shuffled(tmp_path: Path, shuffled: bool) -> None:  # noqa: FBT001 - a row of the table
    """From a policy of random weights, on an environment of one's own."""
    rollout = {"prompts": 8, "responses": 8, "shuffled_rewards": shuffled}
    found = lines(_run(tmp_path, steps=30, rollout=rollout, update={"prompts": 8, "rate": 1e-2}))
    first, last = (sum(line["reward"] for line in part) / 5 for part in (found[:5], found[-5:]))
    assert first < 0.1
    assert (last > 0.5) != shuffled, (first, last)


@pytest.mark.parametrize("choice", CHOICES, ids=name_of)
def test_every_estimator_and_loss_learns(tmp_path: Path, choice: dict[str, Any]) -> None:
    """From the listing of their modules: two mini-batches, twice each, so that policies part; numbers are finite."""
    update = {"prompts": 2, "epochs": 2, "rate": 1e-2}
    found = lines(_run(tmp_path, steps=4, rollout={"prompts": 4, "responses": 8}, update=update, **choice))
    assert len(found) == 4
    assert all(math.isfinite(number) for line in found for number in line.values())
    assert any(line["gradient_norm"] > 0 for line in found)


#: What reads a column that others do not; turns of a conversation in one row.
COLUMNS: dict[str, dict[str, Any]] = {
    "drawn": {"loss": {"name": "clip_cov", **CLIPS, "chosen": DRAWN}},
    "largest": {"loss": {"name": "kl_cov", **MEAN, "penalty": 1.0, "chosen": {"name": "largest", "share": 0.3}}},
    "greedy": {"estimator": {"name": "remax"}},
    "parts": {
        "estimator": {"name": "gdpo", "weight": (1.0, 0.5), "epsilon": 1e-6},
        "environment": {"name": "training:Marked"},
    },
    "squares": {"estimator": {"name": "optimal_token_baseline"}},
    "turns": {
        "estimator": {"name": "turn_level_gae", "discount": 1.0, "decay": 0.9},
        "critic": {"rate": 1e-2},
        "environment": {"name": "training:Twice"},
        "rollout": {"prompts": 4, "responses": 4, "turns": 2},
    },
    "loss of turns": {
        "loss": {"name": "training:of_turns", **MEAN},
        "environment": {"name": "training:Twice"},
        "rollout": {"prompts": 4, "responses": 4, "turns": 2},
    },
}


@pytest.mark.parametrize("name", COLUMNS)
def test_run_with_every_column_goes_on_to_the_same_bytes(tmp_path: Path, name: str) -> None:
    """Its newest checkpoint damaged; weights have moved, and are those of the uninterrupted run."""
    how: dict[str, Any] = {
        "steps": 4,
        "rollout": {"prompts": 4, "responses": 4},
        "update": {"prompts": 2, "epochs": 2, "rate": 1e-2},
        "checkpoint": {"every": 2},
    }
    more = how | COLUMNS[name]
    path = _run(tmp_path, **more)
    whole, found, weights = path.read_bytes(), lines(path), _weights(tmp_path)
    assert all(math.isfinite(number) for line in found for number in line.values())
    start = from_scratch(recipe(**more)).model.state_dict()
    assert max(float((w - start[n]).abs().max()) for n, w in weights.items()) > 1e-3
    (max((tmp_path / "checkpoints").iterdir()) / "seal.json").unlink()
    assert _run(tmp_path, **more).read_bytes() == whole
    assert all(torch.equal(w, weights[n]) for n, w in _weights(tmp_path).items())


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    found = newest(folder / "checkpoints").state
    assert found is not None
    weights: dict[str, torch.Tensor] = found["weights"]
    return weights


def test_greedy_responses_are_no_rows_of_the_metrics(tmp_path: Path) -> None:
    """The policy before the first update says the same with and without them, and is judged by the same responses."""
    first = [lines(_run(tmp_path / n, **more))[0] for n, more in (("a", {}), ("b", COLUMNS["greedy"]))]
    kept = ("reward", "accuracy", "response_length", "entropy")
    assert [first[0][key] for key in kept] == [first[1][key] for key in kept]


def test_watch_is_told_each_step_as_it_is_written(tmp_path: Path) -> None:
    """With its times, and the steps of the warm start before."""
    seen: list[Any] = []
    warmed: list[tuple[int, int]] = []
    watch = Watch(warming=lambda *n: warmed.append(n), step=lambda a, b: seen.append((a, b)))
    train(recipe(tmp_path, warm={"steps": 2, "rows": 4}), kept=kept_in(tmp_path / "cache"), watch=watch)
    assert warmed == [(1, 2), (2, 2)]
    assert [a for a, _ in seen] == lines(tmp_path / "metrics.jsonl")
    assert [b["step"] for _, b in seen] == [1, 2]


class Crash(BaseException):
    """The process ends here."""


def test_run_that_ends_anywhere_goes_on_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended at each third call that touches the disk, once and for all of them; resumed until it is done."""
    more: dict[str, Any] = {
        "steps": 7,
        "checkpoint": {"every": 2},
        "kl": {"reward": 0.1, "target": 0.1, "horizon": 90.0},
    }
    whole = _run(tmp_path / "whole", **more).read_bytes()
    calls, ended = 0, 0

    def dying(name: str, usual: Any) -> None:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal calls, ended
            calls += 1
            if calls % 3 == 0 and random.Random(calls).random() < 0.5:
                ended += 1
                raise Crash
            return usual(*given, **named)

        monkeypatch.setattr(name, call)

    dying("os.fsync", os.fsync)
    dying("pathlib.Path.rename", Path.rename)
    dying("pathlib.Path.replace", Path.replace)
    dying("torch.save", torch.save)
    while True:
        try:
            found = _run(tmp_path / "again", **more).read_bytes()
        except Crash:
            continue
        break
    assert ended >= 3
    assert found == whole


def test_killed_processes_go_on_to_the_same_bytes(tmp_path: Path) -> None:
    """A process of its own, killed at a random moment; ``scripts/killed.py`` kills more often."""
    more: dict[str, Any] = {"steps": 40, "checkpoint": {"every": 3}}
    whole = _run(tmp_path / "whole", **more).read_bytes()
    folder, chance = tmp_path / "again", random.Random(5)
    code = (
        "import sys; from pathlib import Path; from training import recipe, kept_in; "
        "from rl_sentinel.train.run.loop import train; "
        f"train(recipe(sys.argv[1], **{more}), kept=kept_in(Path(sys.argv[1]) / 'cache'))"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", code, str(folder)], env=env)
    end = time.monotonic() + 60
    while not (folder / "metrics.jsonl").exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(chance.random() * 0.2)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert _run(folder, **more).read_bytes() == whole


def test_damaged_checkpoint_is_told_and_the_one_before_taken(tmp_path: Path) -> None:
    """And the run ends with the same bytes."""
    more: dict[str, Any] = {"steps": 6, "checkpoint": {"every": 2}}
    whole = _run(tmp_path, **more).read_bytes()
    newest = max((tmp_path / "checkpoints").iterdir())
    (newest / "state.pt").write_bytes(b"")
    said: list[str] = []
    train(recipe(tmp_path, **more), kept=kept_in(tmp_path / "cache"), watch=Watch(say=said.append))
    assert said[0].startswith(f"checkpoint {newest} is damaged")
    assert said[1] == "going on after step 4 of 6"
    assert (tmp_path / "metrics.jsonl").read_bytes() == whole


@pytest.mark.parametrize("staleness", [0, 2])
def test_run_is_made_longer_to_the_same_bytes(tmp_path: Path, staleness: int) -> None:
    """By more steps, behind its last checkpoint; also where batches are sampled ahead."""
    more: dict[str, Any] = {"checkpoint": {"every": 2}, "rollout": {"staleness": staleness}}
    if staleness:
        more["correction"] = {"weight": "token_weights", "bounds": ({"name": "truncated", "high": 2.0},)}
    whole = _run(tmp_path / "whole", steps=7, **more).read_bytes()
    _run(tmp_path / "again", steps=3, **more)
    assert _run(tmp_path / "again", steps=7, **more).read_bytes() == whole


def test_steps_without_a_checkpoint_are_done_again_and_that_is_said(tmp_path: Path) -> None:
    """How many, and where it should be."""
    whole = _run(tmp_path).read_bytes()
    shutil.rmtree(tmp_path / "checkpoints")
    said: list[str] = []
    train(recipe(tmp_path), kept=kept_in(tmp_path / "cache"), watch=Watch(say=said.append))
    assert said == [f"no whole checkpoint in {tmp_path}/checkpoints: 2 steps are done again"]
    assert (tmp_path / "metrics.jsonl").read_bytes() == whole


def test_checkpoint_knows_its_recipe(tmp_path: Path) -> None:
    """Whoever changed the one beside it."""
    _run(tmp_path)
    place = tmp_path / "recipe.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"seed": 41}))
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.jsonl")}
    with pytest.raises(
        SentinelError, match=r"is of another recipe than recipe.json beside it, expected the same: name"
    ):
        _run(tmp_path, seed=41)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.jsonl")} == before


def test_failed_start_leaves_its_folder_to_the_mended_command(tmp_path: Path) -> None:
    """A server that is not there; then another recipe."""
    with pytest.raises(SentinelError, match="expected an address"):
        _run(tmp_path, rollout={"engine": "http", "url": "nowhere"})
    assert len(lines(_run(tmp_path, seed=3))) == 2
