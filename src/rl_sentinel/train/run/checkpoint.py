"""Checkpoints: everything that a run is, written aside and moved into place; a damaged one is never loaded."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rl_sentinel.core.errors import SentinelError

#: Counted up when what a checkpoint holds changes.
EDITION = 2

_SEAL, _PREFIX = "seal.json", "step-"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The newest checkpoint that is whole, and those that were newer and damaged, with what is wrong with them."""

    state: Mapping[str, Any] | None
    damaged: tuple[str, ...]


def saved(folder: Path, state: Mapping[str, Any], *, step: int, keep: int) -> Path:
    """Write what a run is after a step, and forget all but the newest.

    Args:
        folder: where checkpoints lie.
        state: tensors, numbers and words in dictionaries and lists.
        step: steps that were done.
        keep: how many stay.

    Returns:
        The checkpoint's folder.

    Raises:
        SentinelError: if it cannot be written, as on a full disk; what was there stays.
    """
    place, aside = folder / f"{_PREFIX}{step:08d}", folder / f".aside-{step:08d}"
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        stored(dict(state), aside / "state.pt")
        seal = {"edition": EDITION, "step": step, "sha256": _digest(aside / "state.pt")}
        (aside / _SEAL).write_text(json.dumps(seal), encoding="utf-8")
        for path in (*aside.iterdir(), aside):
            _synced(path)
        if place.exists():
            shutil.rmtree(place)
        aside.rename(place)
        _synced(folder)
        for old in _there(folder)[:-keep]:
            shutil.rmtree(old)
    except (OSError, RuntimeError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        words = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise SentinelError(
            f"checkpoint of step {step} cannot be written to {folder} ({words}): make room, and run the same command "
            "to go on from the one before"
        ) from error
    return place


def newest(folder: Path) -> Loaded:
    """The newest checkpoint that is whole.

    Example:
        >>> from pathlib import Path
        >>> from rl_sentinel.train.run.checkpoint import newest
        >>> newest(Path("nowhere"))
        Loaded(state=None, damaged=())
    """
    damaged: list[str] = []
    for place in reversed(_there(folder)):
        try:
            return Loaded(_opened(place), _said(damaged, "the one before is taken"))
        except SentinelError:
            raise
        except Exception as error:  # noqa: BLE001 - files of any content; what they raise is torch's affair
            damaged.append(f"checkpoint {place} is damaged ({str(error).partition(chr(10))[0]})")
    return Loaded(None, _said(damaged, "there is no whole one before it"))


def _opened(place: Path) -> Mapping[str, Any]:
    """What a checkpoint holds.

    Raises:
        SentinelError: if it is of another edition; anything else is damage.
    """
    seal = json.loads((place / _SEAL).read_text(encoding="utf-8"))
    if seal["edition"] != EDITION:
        raise SentinelError(
            f"checkpoint {place} is of edition {seal['edition']}, expected {EDITION}: go on with the release that "
            "wrote it, or name another folder with out=DIR"
        )
    if seal["sha256"] != _digest(place / "state.pt"):
        raise ValueError("its digest is another")
    state = torch.load(place / "state.pt", weights_only=True)
    if not isinstance(state, Mapping):
        raise TypeError("it holds no state")
    return state


def _said(damaged: Sequence[str], instead: str) -> tuple[str, ...]:
    return tuple(f"{words}, {instead}" for words in damaged)


def stored(state: Mapping[str, Any], path: Path) -> None:
    """Write a file that ``torch.load`` reads.

    Raises:
        OSError: if it cannot be written; torch alone would speak of positions where the disk is full.
    """
    try:
        with path.open("wb") as file:
            torch.save(state, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise


def _there(folder: Path) -> list[Path]:
    """Checkpoints in the order of their steps; what is still aside is none."""
    return sorted(p for p in folder.glob(f"{_PREFIX}*") if p.is_dir()) if folder.is_dir() else []


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _synced(path: Path) -> None:
    """Until the disk has it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
