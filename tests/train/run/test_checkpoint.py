"""Checkpoints are written atomically, and damaged ones are skipped."""

import hashlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.run.checkpoint import FORMAT, load_newest, save_checkpoint, save_tensors


def _state(step: int) -> dict[str, Any]:
    return {"step": step, "weights": {"a": torch.full((3,), float(step))}}


def _step(folder: Path) -> int:
    loaded = load_newest(folder).state
    return 0 if loaded is None else int(loaded["step"])


def test_newest_is_loaded_and_the_oldest_deleted(tmp_path: Path) -> None:
    assert load_newest(tmp_path).state is None
    for step in (5, 10, 15):
        save_checkpoint(tmp_path, _state(step), step=step, keep=2)
    loaded = load_newest(tmp_path)
    assert loaded.state is not None
    assert loaded.damaged == ()
    assert loaded.state["weights"]["a"].tolist() == [15.0] * 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000010", "step-00000015"]


@pytest.mark.parametrize("damage", ["flip", "cut", "no seal", "seal", "no state", "other seal"])
def test_damaged_checkpoint_is_skipped(tmp_path: Path, damage: str) -> None:
    save_checkpoint(tmp_path, _state(1), step=1, keep=3)
    place = save_checkpoint(tmp_path, _state(2), step=2, keep=3)
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
        seal.write_text(json.dumps({"edition": FORMAT}))
    loaded = load_newest(tmp_path)
    assert loaded.state is not None
    assert loaded.state["step"] == 1
    assert len(loaded.damaged) == 1
    assert loaded.damaged[0].startswith(f"checkpoint {place} is damaged (")
    assert loaded.damaged[0].endswith("), using the previous one")


def _seal(place: Path, content: bytes) -> None:
    (place / "state.pt").write_bytes(content)
    seal = {"edition": FORMAT, "step": 2, "sha256": hashlib.sha256(content).hexdigest()}
    (place / "seal.json").write_text(json.dumps(seal))


@pytest.mark.parametrize("content", [b"", b"PK nothing", b"\x80\x02nothing", pickle.dumps(print), pickle.dumps([1])])
def test_unreadable_state_is_damage(tmp_path: Path, content: bytes) -> None:
    place = save_checkpoint(tmp_path, _state(2), step=2, keep=3)
    _seal(place, content)
    (words,) = load_newest(tmp_path).damaged
    assert words.startswith(f"checkpoint {place} is damaged (")
    assert words.endswith("), and no older one is intact")
    assert "\n" not in words
    save_checkpoint(tmp_path, _state(1), step=1, keep=3)
    assert _step(tmp_path) == 1


def test_unfinished_checkpoint_is_ignored(tmp_path: Path) -> None:
    place = save_checkpoint(tmp_path, _state(1), step=1, keep=2)
    shutil.copytree(place, tmp_path / ".aside-00000002")
    assert _step(tmp_path) == 1
    save_checkpoint(tmp_path, _state(2), step=2, keep=2)
    assert _step(tmp_path) == 2
    assert not (tmp_path / ".aside-00000002").exists()


@pytest.mark.parametrize("call", ["torch.save", "pathlib.Path.rename", "pathlib.Path.write_text"])
def test_full_disk_is_one_line_and_keeps_the_previous_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    save_checkpoint(tmp_path, _state(1), step=1, keep=2)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(call, full)
        with pytest.raises(
            SentinelError, match=r"checkpoint of step 2 cannot be written .*\(No space left on device\)"
        ):
            save_checkpoint(tmp_path, _state(2), step=2, keep=2)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    assert _step(tmp_path) == 1


def test_other_edition_is_rejected(tmp_path: Path) -> None:
    place = save_checkpoint(tmp_path, _state(1), step=1, keep=2)
    (place / "seal.json").write_text(json.dumps({"edition": 0, "step": 1, "sha256": ""}))
    with pytest.raises(
        SentinelError,
        match=r"format version of checkpoint .* is 0, expected 2 or 3: use the release that",
    ):
        load_newest(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_full_disk_is_reported_with_the_words_of_the_system() -> None:
    with pytest.raises(OSError, match="No space left on device"):
        save_tensors({"weights": torch.zeros(1 << 16)}, Path("/dev/full"))
