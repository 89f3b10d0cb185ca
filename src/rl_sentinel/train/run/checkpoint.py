"""Checkpoints: written to a temporary folder, sealed with digests, moved into place; a damaged one is never loaded."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import reason_of
from rl_sentinel.train.run.distributed import ALONE, Ranks
from rl_sentinel.train.run.sharded_state import read_whole, save_shards

#: The versions of the format, increased when the contents of a checkpoint change: of one process, and with shards.
FORMAT, SHARDED_FORMAT = 2, 3

_SEAL, _PREFIX, _STATE, _SHARDS = "seal.json", "step-", "state.pt", "shards"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The state of the newest intact checkpoint, or None, and a message for each newer one that is damaged."""

    state: Mapping[str, Any] | None
    damaged: tuple[str, ...]


def save_checkpoint(  # noqa: PLR0913 - the state, where it goes, and who writes
    folder: Path,
    state: Mapping[str, Any],
    *,
    step: int,
    keep: int,
    shards: Mapping[str, Tensor] | None = None,
    ranks: Ranks = ALONE,
    group: Any = None,  # noqa: ANN401 - a process group of torch
) -> Path:
    """Save a run's state after a step, and delete all but the newest checkpoints. Call it on all ranks.

    Args:
        folder: the folder of checkpoints.
        state: tensors, numbers and strings in dictionaries and lists; written by the first rank.
        step: the number of steps done.
        keep: how many checkpoints to keep.
        shards: this rank's weights and moments, from ``collect_shards``; None if ``state`` has them.
        ranks: this process among all.
        group: the process group of the calling thread; None for the main thread's group.

    Returns:
        The checkpoint's folder.

    Raises:
        SentinelError: if it cannot be written, for example on a full disk; older checkpoints stay.
    """
    checkpoint, partial = folder / f"{_PREFIX}{step:08d}", folder / f".aside-{step:08d}"
    try:
        if ranks.is_first:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        if shards is not None:
            ranks.barrier(group)
            save_shards(shards, partial / _SHARDS, group)
        if ranks.is_first:
            save_tensors(dict(state), partial / _STATE)
            _seal(partial, step)
            if checkpoint.exists():
                shutil.rmtree(checkpoint)
            partial.rename(checkpoint)
            _fsync(folder)
            for old in _checkpoints(folder)[:-keep]:
                shutil.rmtree(old)
    except (OSError, RuntimeError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        fix = f"{'make room' if full else 'fix this'}, and run the same command to resume from the previous checkpoint"
        raise SentinelError(
            f"checkpoint of step {step} cannot be written to {folder} ({reason_of(error)}): {fix}"
        ) from error
    return checkpoint


def load_newest(folder: Path, *, whole: bool = True) -> Loaded:
    """Load the newest intact checkpoint: damaged ones are skipped, but one of another format version is an error.

    Args:
        folder: the folder of checkpoints.
        whole: True reads shards as ``weights`` and ``optimizer``; False returns their folder as ``shards``.

    Returns:
        The state, which is None if no checkpoint is intact, and a message for each damaged checkpoint.

    Raises:
        SentinelError: if the seal of a checkpoint has another format version; older checkpoints are not tried.
    """
    damaged: list[str] = []
    for checkpoint in reversed(_checkpoints(folder)):
        try:
            return Loaded(
                _load(checkpoint, whole=whole), tuple(f"{message}, using the previous one" for message in damaged)
            )
        except SentinelError:
            raise
        except Exception as error:  # noqa: BLE001 - torch raises errors of many types for damaged files
            damaged.append(f"checkpoint {checkpoint} is damaged ({reason_of(error)})")
    return Loaded(None, tuple(f"{message}, and no older one is intact" for message in damaged))


def _seal(partial: Path, step: int) -> None:
    """Write the digests of all files, and flush all bytes to the disk."""
    shards = {path.name: _digest(path) for path in sorted((partial / _SHARDS).glob("*"))}
    seal = {"edition": SHARDED_FORMAT if shards else FORMAT, "step": step, "sha256": _digest(partial / _STATE)}
    (partial / _SEAL).write_text(json.dumps(seal | ({"shards": shards} if shards else {})), encoding="utf-8")
    for path in (*partial.rglob("*"), partial):
        _fsync(path)


def _load(checkpoint: Path, *, whole: bool) -> Mapping[str, Any]:
    """Load a checkpoint.

    Raises:
        SentinelError: if its format has another version; any other error means damage.
    """
    seal = json.loads((checkpoint / _SEAL).read_text(encoding="utf-8"))
    if seal["edition"] not in (FORMAT, SHARDED_FORMAT):
        raise SentinelError(
            f"format version of checkpoint {checkpoint} is {seal['edition']}, expected {FORMAT} or {SHARDED_FORMAT}: "
            "use the release that wrote it, or another folder"
        )
    digests = {f"{_SHARDS}/{name}": digest for name, digest in seal.get("shards", {}).items()}
    if any(_digest(checkpoint / name) != digest for name, digest in ({_STATE: seal["sha256"]} | digests).items()):
        raise ValueError("its digest differs")
    state = torch.load(checkpoint / _STATE, map_location="cpu", weights_only=True)
    if not isinstance(state, Mapping):
        raise TypeError("it has no state")
    if not digests:
        return state
    return {**state, **(read_whole(checkpoint / _SHARDS) if whole else {"shards": checkpoint / _SHARDS})}


def save_tensors(state: Mapping[str, Any], path: Path) -> None:
    """Write a file for ``torch.load``.

    Raises:
        OSError: if it cannot be written; also on a full disk, for which ``torch.save`` raises a ``RuntimeError``.
    """
    try:
        with path.open("wb") as file:
            torch.save(state, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise


def _checkpoints(folder: Path) -> list[Path]:
    """The folders of all finished checkpoints, oldest first."""
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
