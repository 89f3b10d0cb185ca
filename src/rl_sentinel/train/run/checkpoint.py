"""Checkpoints: written aside, sealed with a digest, and moved into place; a damaged one is never loaded."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rl_sentinel.core.errors import SentinelError

#: The version of the format; increased when the contents of a checkpoint change.
EDITION = 2

_SEAL, _PREFIX = "seal.json", "step-"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The state of the newest intact checkpoint, and a message for each newer one that is damaged."""

    state: Mapping[str, Any] | None
    damaged: tuple[str, ...]


def save_checkpoint(folder: Path, state: Mapping[str, Any], *, step: int, keep: int) -> Path:
    """Save a run's state after a step, and delete all but the newest checkpoints.

    Args:
        folder: the folder of checkpoints.
        state: tensors, numbers and strings in dictionaries and lists.
        step: the number of steps done.
        keep: how many checkpoints to keep.

    Returns:
        The checkpoint's folder.

    Raises:
        SentinelError: if it cannot be written, as on a full disk; older checkpoints stay.
    """
    place, partial = folder / f"{_PREFIX}{step:08d}", folder / f".aside-{step:08d}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save_tensors(dict(state), partial / "state.pt")
        seal = {"edition": EDITION, "step": step, "sha256": _digest(partial / "state.pt")}
        (partial / _SEAL).write_text(json.dumps(seal), encoding="utf-8")
        for path in (*partial.iterdir(), partial):
            _fsync(path)
        if place.exists():
            shutil.rmtree(place)
        partial.rename(place)
        _fsync(folder)
        for old in _checkpoints(folder)[:-keep]:
            shutil.rmtree(old)
    except (OSError, RuntimeError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise SentinelError(
            f"checkpoint of step {step} cannot be written to {folder} ({reason}): make room, and run the same command "
            "to resume from the previous checkpoint"
        ) from error
    return place


def load_newest(folder: Path) -> Loaded:
    """Load the newest intact checkpoint."""
    damaged: list[str] = []
    for place in reversed(_checkpoints(folder)):
        try:
            return Loaded(_load(place), tuple(f"{message}, using the previous one" for message in damaged))
        except SentinelError:
            raise
        except Exception as error:  # noqa: BLE001 - torch raises errors of many types for damaged files
            damaged.append(f"checkpoint {place} is damaged ({str(error).partition(chr(10))[0]})")
    return Loaded(None, tuple(f"{message}, and no older one is intact" for message in damaged))


def _load(place: Path) -> Mapping[str, Any]:
    """Load a checkpoint.

    Raises:
        SentinelError: if it is of another edition; any other error means damage.
    """
    seal = json.loads((place / _SEAL).read_text(encoding="utf-8"))
    if seal["edition"] != EDITION:
        raise SentinelError(
            f"edition of checkpoint {place} is {seal['edition']}, expected {EDITION}: resume with the release that "
            "wrote it, or name another folder with out=DIR"
        )
    if seal["sha256"] != _digest(place / "state.pt"):
        raise ValueError("its digest differs")
    state = torch.load(place / "state.pt", map_location="cpu", weights_only=True)
    if not isinstance(state, Mapping):
        raise TypeError("it has no state")
    return state


def save_tensors(state: Mapping[str, Any], path: Path) -> None:
    """Write a file for ``torch.load``.

    Raises:
        OSError: if it cannot be written; on a full disk ``torch.save`` raises a ``RuntimeError`` about file positions.
    """
    try:
        with path.open("wb") as file:
            torch.save(state, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise


def _checkpoints(folder: Path) -> list[Path]:
    """All checkpoints in place, by step."""
    return sorted(p for p in folder.glob(f"{_PREFIX}*") if p.is_dir()) if folder.is_dir() else []


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
