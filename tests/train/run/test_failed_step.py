"""What is kept of a step that cannot be."""

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
from rl_sentinel.train.run.checkpoint import newest
from rl_sentinel.train.run.failed_step import replayed
from rl_sentinel.train.run.loop import train
from training import Letter, kept_in, recipe


@dataclass(frozen=True, slots=True)
class Broken(Letter):
    """An environment whose reward is NaN, or larger than a gradient can be."""

    reward: float = torch.nan

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:  # noqa: ARG002 - asked with it
        """Of either sign, so that responses differ."""
        return Outcome(self.reward * (1 if random.Random(responses[-1]).random() < 0.5 else -1), correct=False)


def _stopped(folder: Path, reward: float) -> tuple[Recipe, Path, str]:
    environment = {"name": "test_evidence:Broken", "reward": reward}
    wanted = recipe(folder, environment=environment, kl={"loss": 0.1}, update={"prompts": 1})
    with pytest.raises(SentinelError) as told:
        train(wanted, kept=kept_in(folder / "cache"))
    (place,) = folder.glob("stopped-*.pt")
    return wanted, place, str(told.value)


@pytest.fixture(autouse=True)
def _named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let recipes name this module's environment."""
    import sys  # noqa: PLC0415 - for this alone

    monkeypatch.setitem(sys.modules, "test_evidence", sys.modules[__name__])


def test_loss_that_is_none_stops_at_its_step(tmp_path: Path) -> None:
    """The step, the words and the way to do it again; and it happens again."""
    _, place, words = _stopped(tmp_path, 1e30)
    assert place.name == "stopped-00000001.pt"
    assert words.startswith("step 1 stopped: loss is ")
    assert words.endswith(f"expected finite numbers; rl-sentinel train {place} does it again")
    then, now = replayed(place)
    assert then == now
    assert not (tmp_path / "metrics.jsonl").exists()


def test_bounds_without_an_end_are_kept(tmp_path: Path) -> None:
    """In the recipe of what is kept, too."""
    correction = {"weight": "token_weights", "bounds": ({"name": "truncated", "high": math.inf},)}
    with pytest.raises(SentinelError):
        train(recipe(tmp_path, correction=correction, update={"rate": 1e30}), kept=kept_in(tmp_path / "cache"))
    (place,) = tmp_path.glob("stopped-*.pt")
    then, now = replayed(place)
    assert then == now


#: What ruins weights, and what is said: too large for a norm, numbers that compute none, a critic's.
RUINED: dict[str, tuple[dict[str, Any], str]] = {
    "weights": (
        {"update": {"rate": 1e30}},
        "norm of the weights after the step is inf, expected a finite number: update.rate was 1e+30, take a lower one",
    ),
    "logprobs": ({"update": {"rate": 1e14}}, "by the weights after it logprob[0, 0] is nan, expected a finite number"),
    "critic": (
        {"estimator": {"name": "gae", "discount": 1.0, "decay": 0.9}, "critic": {"rate": 1e30}},
        "critic: norm of the weights after the step is inf, expected a finite number: critic.rate was 1e+30",
    ),
}


@pytest.mark.parametrize("name", RUINED)
@pytest.mark.parametrize("ramp", [0, 3])
def test_ruined_weights_stop_their_step_and_reach_no_checkpoint(tmp_path: Path, name: str, ramp: int) -> None:
    """Of the last step too; the checkpoint before stays, the step is in no metric, and it happens again."""
    more, words = RUINED[name]
    how = {"ramp": ramp, **more.get("update", {})}
    wanted = recipe(tmp_path, **more | {"steps": 1, "checkpoint": {"every": 1}, "update": how})
    with pytest.raises(SentinelError) as told:
        train(wanted, kept=kept_in(tmp_path / "cache"))
    (place,) = tmp_path.glob("stopped-*.pt")
    expected = words if ramp == 0 or name == "critic" else words.partition(": update.rate")[0]
    assert str(told.value).startswith(f"step 1 stopped: {expected}"), told.value
    then, now = replayed(place)
    assert then == now != ""
    assert newest(tmp_path / "checkpoints").state is None
    assert not (tmp_path / "metrics.jsonl").exists()


def test_evidence_that_cannot_be_kept_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk the step is told all the same."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.save", full)
    wanted = recipe(tmp_path, environment={"name": "test_evidence:Broken", "reward": 1e30})
    with pytest.raises(SentinelError, match=r"^step 1 stopped: .*cannot be written \(No space left on device\)"):
        train(wanted, kept=kept_in(tmp_path / "cache"))


def test_reward_that_is_none_stops_before_the_loss(tmp_path: Path) -> None:
    """The path refuses it, with its place."""
    _, place, words = _stopped(tmp_path, torch.nan)
    assert words.startswith("step 1 stopped: reward[0] is nan, expected a finite number")
    then, now = replayed(place)
    assert then == now


def test_what_was_mended_is_told(tmp_path: Path) -> None:
    """The same batch with weights that are numbers again."""
    _, place, _ = _stopped(tmp_path, 1e30)
    found = torch.load(place, weights_only=True)
    found["batch"]["advantage"] = found["batch"]["advantage"].clamp(-1, 1)
    torch.save(found, place)
    assert replayed(place)[1] == ""


def test_what_is_no_evidence_is_refused(tmp_path: Path) -> None:
    """In one line."""
    place = tmp_path / "a.pt"
    place.write_bytes(b"PK nothing")
    with pytest.raises(
        SentinelError, match=r"evidence .*a.pt cannot be read .* expected what a stopped run wrote"
    ) as told:
        replayed(place)
    assert "\n" not in str(told.value)
