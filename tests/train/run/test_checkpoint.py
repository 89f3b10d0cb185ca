"""Checkpoints: whole or not at all, damaged ones passed over."""

import hashlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.run.checkpoint import EDITION, newest, saved, stored


def _state(step: int) -> dict[str, Any]:
    return {"step": step, "weights": {"a": torch.full((3,), float(step))}}


def _step(folder: Path) -> int:
    found = newest(folder).state
    return 0 if found is None else int(found["step"])


def test_newest_is_loaded_and_the_oldest_forgotten(tmp_path: Path) -> None:
    """As many as are kept."""
    assert newest(tmp_path).state is None
    for step in (5, 10, 15):
        saved(tmp_path, _state(step), step=step, keep=2)
    found = newest(tmp_path)
    assert found.state is not None
    assert found.damaged == ()
    assert found.state["weights"]["a"].tolist() == [15.0] * 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000010", "step-00000015"]


@pytest.mark.parametrize("damage", ["flip", "cut", "no seal", "seal", "no state", "other seal"])
def test_damaged_one_is_refused_and_the_one_before_taken(tmp_path: Path, damage: str) -> None:
    """Whatever was damaged; and it is told which."""
    saved(tmp_path, _state(1), step=1, keep=3)
    place = saved(tmp_path, _state(2), step=2, keep=3)
    state, seal = place / "state.pt", place / "seal.json"
    whole = state.read_bytes()
    if damage == "flip":
        state.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    elif damage == "cut":
        state.write_bytes(whole[: len(whole) // 2])
    elif damage == "no seal":
        seal.unlink()
    elif damage == "seal":
        seal.write_text("{")
    elif damage == "no state":
        state.unlink()
    else:
        seal.write_text(json.dumps({"edition": EDITION}))
    found = newest(tmp_path)
    assert found.state is not None
    assert found.state["step"] == 1
    assert len(found.damaged) == 1
    assert found.damaged[0].startswith(f"checkpoint {place} is damaged (")
    assert found.damaged[0].endswith("), the one before is taken")


def _sealed(place: Path, content: bytes) -> None:
    """Other content behind a seal that is whole."""
    (place / "state.pt").write_bytes(content)
    told = {"edition": EDITION, "step": 2, "sha256": hashlib.sha256(content).hexdigest()}
    (place / "seal.json").write_text(json.dumps(told))


@pytest.mark.parametrize("content", [b"", b"PK nothing", b"\x80\x02nothing", pickle.dumps(print), pickle.dumps([1])])
def test_state_that_torch_cannot_read_is_damage(tmp_path: Path, content: bytes) -> None:
    """Though the seal is its own; in one line, and without a whole one before it that is said."""
    place = saved(tmp_path, _state(2), step=2, keep=3)
    _sealed(place, content)
    (words,) = newest(tmp_path).damaged
    assert words.startswith(f"checkpoint {place} is damaged (")
    assert words.endswith("), there is no whole one before it")
    assert "\n" not in words
    saved(tmp_path, _state(1), step=1, keep=3)
    assert _step(tmp_path) == 1


def test_what_is_aside_is_none(tmp_path: Path) -> None:
    """A process killed while it wrote; the next one writes over it."""
    place = saved(tmp_path, _state(1), step=1, keep=2)
    shutil.copytree(place, tmp_path / ".aside-00000002")
    assert _step(tmp_path) == 1
    saved(tmp_path, _state(2), step=2, keep=2)
    assert _step(tmp_path) == 2
    assert not (tmp_path / ".aside-00000002").exists()


@pytest.mark.parametrize("call", ["torch.save", "pathlib.Path.rename", "pathlib.Path.write_text"])
def test_full_disk_is_one_line_and_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Wherever it fills up."""
    saved(tmp_path, _state(1), step=1, keep=2)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(call, full)
        with pytest.raises(
            SentinelError, match=r"checkpoint of step 2 cannot be written .*\(No space left on device\)"
        ):
            saved(tmp_path, _state(2), step=2, keep=2)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    assert _step(tmp_path) == 1


def test_other_edition_is_told(tmp_path: Path) -> None:
    """Rather than taken for damage."""
    place = saved(tmp_path, _state(1), step=1, keep=2)
    (place / "seal.json").write_text(json.dumps({"edition": 0, "step": 1, "sha256": ""}))
    with pytest.raises(
        SentinelError, match=r"is of edition 0, expected 2: go on with the release that wrote it, or name"
    ):
        newest(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_disk_that_fills_up_under_torch_is_called_full() -> None:
    """A device that has no room for a byte: the words are the system's, not torch's."""
    with pytest.raises(OSError, match="No space left on device"):
        stored({"weights": torch.zeros(1 << 16)}, Path("/dev/full"))
