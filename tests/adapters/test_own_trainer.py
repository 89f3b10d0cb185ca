"""The trainer's own path as a target: it is bound, it moves, laws are asked of it, and they see a fault put there."""

from dataclasses import replace
from pathlib import Path

import pytest

import rl_sentinel
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters import own_trainer
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.audit.engine.judge import smoke_check
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.dead_row_shifts_signal import LAW as DEAD_ROW
from rl_sentinel.laws.infinite_gradient_applied import LAW as INFINITE
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPLIT
from rl_sentinel.laws.trained_token_without_signal import LAW as SILENT
from specimens import judged

TARGET = Target(root=Path(rl_sentinel.__file__).parents[1])
FOUND = [b for b in own_trainer.FRAMEWORK.boundaries(TARGET) if isinstance(b, Boundary)]
FAULTS = Path(__file__).parents[2] / "examples" / "faults.py"


def _named(name: str) -> Boundary:
    """A boundary of one setting, under the name that specimens have."""
    (found,) = [b for b in FOUND if name in b.settings]
    return replace(found, settings={"default": found.settings[name]})


@pytest.mark.parametrize("boundary", FOUND, ids=lambda b: next(iter(b.settings)))
def test_smoke_check(boundary: Boundary) -> None:
    """Each boundary answers with tensors that move."""
    for setting in boundary.settings:
        assert smoke_check(Asker(boundary, {}, gate=TARGET), setting) == ""


def test_every_call_reads_back() -> None:
    """The batch and all settings."""
    check_round_trips(TARGET, [boundary for boundary in FOUND if boundary.stage != "step"])  # it has no tokens


@pytest.mark.parametrize(
    ("law", "name"),
    [
        (DEAD_ROW, "single turns"),
        (SILENT, "a row per turn"),
        (SPLIT, "ppo, token-mean"),
        (INFINITE, "NaN in the gradient"),
        (INFINITE, "infinite gradient"),
    ],
    ids=["dead row", "silent step", "split", "NaN", "infinite"],
)
def test_sound_path_is_tried_and_holds(law: Law, name: str) -> None:
    """``rl-sentinel audit rl_sentinel.train`` asks every law."""
    found = judged(law, _named(name), gate=TARGET)
    assert (found.tried > 0, found.found) == (True, None)


@pytest.mark.skipif(not FAULTS.exists(), reason="examples lie in the source tree, not in the wheel")
@pytest.mark.parametrize(
    ("law", "name", "fault"),
    [(DEAD_ROW, "single turns", "rejected_in_baseline"), (SILENT, "a row per turn", "last_step_alone")],
    ids=["dead row", "silent step"],
)
def test_fault_in_its_path_is_found(law: Law, name: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same law, on the same route with one thing wrong."""
    monkeypatch.setitem(own_trainer.RECIPE, "path", f"{FAULTS}:{fault}")
    assert judged(law, _named(name)).found is not None
