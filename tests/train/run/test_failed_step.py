"""Dumps of failed steps, and their replay."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.rollout.interfaces import Outcome, Task
from rl_sentinel.train.run.checkpoint import load_newest
from rl_sentinel.train.run.failed_step import replay_failed_step
from rl_sentinel.train.run.loop import train
from training import Letter, folder_cache, recipe


@dataclass(frozen=True, slots=True)
class Broken(Letter):
    """An environment whose reward is NaN, or so large that the gradient overflows."""

    reward: float = torch.nan

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:  # noqa: ARG002 - part of the interface
        """A reward of either sign, so that responses differ."""
        return Outcome(self.reward * (1 if random.Random(responses[-1]).random() < 0.5 else -1), correct=False)


def _stopped(folder: Path, reward: float) -> tuple[Recipe, Path, str]:
    environment = {"name": "test_failed_step:Broken", "reward": reward}
    config = recipe(folder, environment=environment, kl={"loss": 0.1}, update={"prompts": 1})
    with pytest.raises(SentinelError) as error:
        train(config, cache=folder_cache(folder / "cache"))
    (place,) = folder.glob("stopped-*.pt")
    return config, place, str(error.value)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys  # noqa: PLC0415 - for this alone

    monkeypatch.setitem(sys.modules, "test_failed_step", sys.modules[__name__])


def test_non_finite_loss_stops_its_step(tmp_path: Path) -> None:
    _, place, words = _stopped(tmp_path, 1e30)
    assert place.name == "stopped-00000001.pt"
    assert words.startswith("step 1 stopped: loss is ")
    assert words.endswith(f"after finite steps, lower update.rate; rl-sentinel train {place} repeats the step")
    then, now = replay_failed_step(place)
    assert then == now
    assert not (tmp_path / "metrics.jsonl").exists()


def test_infinite_bounds_survive_the_dump(tmp_path: Path) -> None:
    correction = {"weight": "token_weights", "bounds": ({"name": "truncated", "high": math.inf},)}
    with pytest.raises(SentinelError):
        train(recipe(tmp_path, correction=correction, update={"rate": 1e30}), cache=folder_cache(tmp_path / "cache"))
    (place,) = tmp_path.glob("stopped-*.pt")
    then, now = replay_failed_step(place)
    assert then == now


#: Settings that break weights, and the message: an infinite norm, log-probs that are NaN, the critic's.
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "weights": (
        {"update": {"rate": 1e30}},
        "norm of the weights after the optimizer step is inf, expected a finite number: lower update.rate",
    ),
    "logprobs": ({"update": {"rate": 1e14}}, "after the update logprob[0, 0] is nan, expected a finite number"),
    "critic": (
        {"estimator": {"name": "gae", "discount": 1.0, "decay": 0.9}, "critic": {"rate": 1e30}},
        "critic: norm of the weights after the optimizer step is inf, expected a finite number: lower critic.rate",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("ramp", [0, 3])
def test_non_finite_weights_stop_their_step_and_reach_no_checkpoint(tmp_path: Path, name: str, ramp: int) -> None:
    more, words = BROKEN[name]
    update = {"ramp": ramp, **more.get("update", {})}
    config = recipe(tmp_path, **more | {"steps": 1, "checkpoint": {"every": 1}, "update": update})
    with pytest.raises(SentinelError) as error:
        train(config, cache=folder_cache(tmp_path / "cache"))
    (place,) = tmp_path.glob("stopped-*.pt")
    expected = words if ramp == 0 or name == "critic" else words.partition(": lower update.rate")[0]
    assert str(error.value).startswith(f"step 1 stopped: {expected}"), error.value
    then, now = replay_failed_step(place)
    assert then == now != ""
    assert load_newest(tmp_path / "checkpoints").state is None
    assert not (tmp_path / "metrics.jsonl").exists()


def test_dump_that_cannot_be_written_hides_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.save", full)
    config = recipe(tmp_path, environment={"name": "test_failed_step:Broken", "reward": 1e30})
    with pytest.raises(SentinelError, match=r"^step 1 stopped: .*cannot be written \(No space left on device\)"):
        train(config, cache=folder_cache(tmp_path / "cache"))


def test_non_finite_reward_stops_before_the_loss(tmp_path: Path) -> None:
    _, place, words = _stopped(tmp_path, torch.nan)
    assert words.startswith("step 1 stopped: reward[0] is nan, expected a finite number")
    then, now = replay_failed_step(place)
    assert then == now


def test_fixed_step_no_longer_fails(tmp_path: Path) -> None:
    _, place, _ = _stopped(tmp_path, 1e30)
    dump = torch.load(place, weights_only=True)
    dump["batch"]["advantage"] = dump["batch"]["advantage"].clamp(-1, 1)
    torch.save(dump, place)
    assert replay_failed_step(place)[1] == ""


def test_other_file_is_rejected(tmp_path: Path) -> None:
    place = tmp_path / "a.pt"
    place.write_bytes(b"PK nothing")
    with pytest.raises(SentinelError, match=r"dump .*a.pt cannot be read .* expected a file RUN/stopped-") as error:
        replay_failed_step(place)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"xxxx"])
def test_a_file_that_torch_did_not_write_is_named_without_advice_to_load_it(content: bytes, tmp_path: Path) -> None:
    place = tmp_path / "dump.pt"
    place.write_bytes(content)
    with pytest.raises(SentinelError, match=r"cannot be read \(torch.save did not write it, or .*\), expected a "):
        replay_failed_step(place)
