"""A run's folder: the recipe that it runs, a line per step, and times apart from what must be equal."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.paths import expanded
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.run.distributed import ALONE, Ranks
from rl_sentinel.train.run.fingerprint import differing
from rl_sentinel.train.run.run_directory import Past


class Journal:
    """``metrics.jsonl`` and ``timing.jsonl`` of a run, and the lock of its folder."""

    def __init__(self, folder: Path, *, writes: bool) -> None:
        """Nothing is opened yet; a rank that is not the first writes nothing."""
        self.writes = writes
        self.folder = folder
        self.metrics, self.timing = folder / "metrics.jsonl", folder / "timing.jsonl"
        self.checkpoints = folder / "checkpoints"
        self._lock = FileLock(folder / ".lock")

    @classmethod
    def opened(cls, recipe: Recipe, ranks: Ranks = ALONE) -> Self:
        """The folder of a run, made where it is not there, and held by this process.

        Raises:
            SentinelError: if it cannot be made, another process is at it, or it holds a run of another recipe.
        """
        folder = expanded(recipe.out, "out")
        if not ranks.first:
            return cls(folder, writes=False)
        _require_free(Past.found(folder), recipe, folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            journal = cls(folder, writes=True)
            journal._lock.acquire(timeout=0)
        except Timeout as error:
            raise SentinelError(
                f"out[{folder}] is in use by another run: wait for it, or name another with out=DIR"
            ) from error
        except OSError as error:
            raise SentinelError(
                f"out[{folder}] cannot be used ({error.strerror}): name another with out=DIR"
            ) from error
        try:
            _require_free(Past.found(folder), recipe, folder)  # as it is now that nobody else is at it
            told = json.dumps(recipe.model_dump(mode="json", exclude={"out"}), indent=1)
            _replaced(folder / "recipe.json", told.encode())
        except SentinelError:
            journal.close()
            raise
        return journal

    def close(self) -> None:
        """Leave the folder to others."""
        self._lock.release()

    def wrote(self, seen: Mapping[str, Any], spent: Mapping[str, Any]) -> None:
        """One line each.

        Raises:
            SentinelError: if they cannot be written, as on a full disk; what is half a line is cut off by ``back``.
        """
        for path, line in ((self.metrics, seen), (self.timing, spent)) if self.writes else ():
            with _written(path), path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def told(self) -> int:
        """How many steps the metrics tell."""
        return self.metrics.read_bytes().count(b"\n") if self.metrics.exists() else 0

    def mark(self) -> dict[str, Any]:
        """Where the metrics stand, for a checkpoint: lines, and the digest of what they say."""
        if not self.writes:
            return {}
        text = self.metrics.read_bytes() if self.metrics.exists() else b""
        with _written(self.metrics), self.metrics.open("ab") as file:
            os.fsync(file.fileno())
        return {"lines": text.count(b"\n"), "sha256": hashlib.sha256(text).hexdigest()}

    def back(self, mark: Mapping[str, Any] | None) -> None:
        """Cut both files to where a checkpoint was taken; to nothing where there is none.

        Raises:
            SentinelError: if the metrics are not those that the checkpoint knows.
        """
        if not self.writes:
            return
        lines = 0 if mark is None else int(mark["lines"])
        kept = self._cut(self.metrics, lines)
        if mark is not None and hashlib.sha256(kept).hexdigest() != mark["sha256"]:
            raise SentinelError(
                f"{self.metrics} is not what the checkpoint knows, expected {lines} lines as they were written: "
                "name another folder with out=DIR"
            )
        self._cut(self.timing, lines)

    def _cut(self, path: Path, lines: int) -> bytes:
        text = path.read_bytes() if path.exists() else b""
        kept = b"".join(text.splitlines(keepends=True)[:lines])
        if kept != text:
            _replaced(path, kept)
        return kept


def _require_free(past: Past, recipe: Recipe, folder: Path) -> None:
    """A folder in which nothing was done, or as many steps of the same run as are asked for, or fewer."""
    if not past.begun or past.recipe is None:
        return
    apart = differing(recipe, past.recipe)
    if apart:
        keys = f"{', '.join(apart)} differ{'s' if len(apart) == 1 else ''}"
        raise SentinelError(f"out[{folder}] holds a run of another recipe ({keys}): name another with out=DIR")
    if recipe.steps < past.steps:
        raise SentinelError(
            f"steps is {recipe.steps}, expected {past.steps} or more, which are done in {folder}: name another folder "
            "with out=DIR"
        )


def _replaced(path: Path, text: bytes) -> None:
    """Write a file whole or not at all; what was there stays until then."""
    aside = path.with_suffix(".aside")
    with _written(path):
        try:
            aside.write_bytes(text)
            aside.replace(path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise


@contextmanager
def _written(path: Path) -> Iterator[None]:
    """What cannot be written, as on a full disk, is told in one line."""
    try:
        yield
    except OSError as error:
        way = "make room, and run the same command to go on from the newest checkpoint"
        raise SentinelError(f"{path} cannot be written ({error.strerror}): {way}") from error


def lines(path: Path) -> list[dict[str, Any]]:
    """The steps of a file of JSON lines: objects with their step, and numbers.

    Raises:
        SentinelError: if it cannot be read, or a line is none; with the line.
    """
    try:
        text = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise SentinelError(f"{path} cannot be read ({error}), expected a JSON object per line") from error
    if not text:
        raise SentinelError(f"{path} is empty, expected a JSON object per line: wait for the first step")
    return [_step(line, f"{path} line {number}") for number, line in enumerate(text, 1)]


def _step(line: str, where: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SentinelError(f"{where} cannot be read ({error}), expected a JSON object per line") from error
    if not isinstance(told, dict) or not isinstance(told.get("step"), int):
        raise SentinelError(f"{where} is {line[:40]!r}, expected an object with its step: name the folder of a run")
    for key, value in told.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise SentinelError(f"{where}[{key}] is {value!r}, expected a number: name the folder of a run")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise SentinelError(f"{where}[{key}] has {len(str(abs(value)))} digits, expected a number of a run")
    return told
