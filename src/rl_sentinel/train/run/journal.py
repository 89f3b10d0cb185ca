"""A run's log files: the recipe, metrics per step, and times in a separate file because they vary."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.paths import expanded
from rl_sentinel.core.phrasing import shortened
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.run.distributed import ALONE, Ranks
from rl_sentinel.train.run.fingerprint import differing_keys
from rl_sentinel.train.run.run_directory import FURTHER_LOGS, RunDirectory

#: What to do if a log has a line that no run writes.
_NAME_A_RUN = "no run wrote this; name the folder of a run"


class Journal:
    """The log files of a run, a JSON object per line, and the lock of its directory.

    Besides ``metrics`` and ``timing``, there are further ``logs``; all of them are truncated on resume.
    """

    def __init__(self, folder: Path, *, writes: bool) -> None:
        """Store the folder; only the first rank ``writes``."""
        self.writes = writes
        self.folder = folder
        self.metrics, self.timing = folder / "metrics.jsonl", folder / "timing.jsonl"
        self.checkpoints, self.best = folder / "checkpoints", folder / "best"
        self.logs = {name: folder / f"{name}.jsonl" for name in FURTHER_LOGS}
        self._lock = FileLock(folder / ".lock")

    @classmethod
    def open(cls, recipe: Recipe, ranks: Ranks = ALONE) -> Self:
        """Create the directory if needed, lock it, and write ``recipe.json``; only the first rank does so.

        Raises:
            SentinelError: if the directory cannot be used, is in use, or has a run that does not fit the recipe.
        """
        folder = expanded(recipe.out, "out")
        if not ranks.is_first:
            return cls(folder, writes=False)
        _require_resumable(RunDirectory.inspect(folder), recipe, folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            journal = cls(folder, writes=True)
            journal._lock.acquire(timeout=0)
        except Timeout as error:
            raise SentinelError(
                f"out is {str(folder)!r}, which another run uses: wait until that run ends, or name another folder "
                "with out=DIR"
            ) from error
        except OSError as error:
            raise SentinelError(
                f"out[{folder}] cannot be used ({error.strerror}): name another folder with out=DIR"
            ) from error
        try:
            # Again under the lock: another run may have started in between.
            _require_resumable(RunDirectory.inspect(folder), recipe, folder)
            text = json.dumps(recipe.model_dump(mode="json", exclude={"out"}), indent=1)
            _replace(folder / "recipe.json", text.encode())
        except SentinelError:
            journal.close()
            raise
        return journal

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def append(self, path: Path, *lines: Mapping[str, Any]) -> None:
        """Append lines to one of the files; only the first rank does so.

        Raises:
            SentinelError: if it cannot be written, for example on a full disk; ``truncate`` removes a partial line.
        """
        if self.writes and lines:
            with _write_errors_in_one_line(path), path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)

    def count_steps(self) -> int:
        """The number of logged steps."""
        return self.metrics.read_bytes().count(b"\n") if self.metrics.exists() else 0

    def position(self) -> dict[str, Any]:
        """The position for a checkpoint: lines and digest of the metrics, bytes of the further logs.

        Empty on ranks other than the first.
        """
        if not self.writes:
            return {}
        sizes = {}
        for name, path in self.logs.items():
            with _write_errors_in_one_line(path), path.open("ab") as file:
                os.fsync(file.fileno())
                sizes[name] = file.tell()
        text = self.metrics.read_bytes() if self.metrics.exists() else b""
        with _write_errors_in_one_line(self.metrics), self.metrics.open("ab") as file:
            os.fsync(file.fileno())
        return {"lines": text.count(b"\n"), "sha256": hashlib.sha256(text).hexdigest(), "sizes": sizes}

    def truncate(self, position: Mapping[str, Any] | None) -> None:
        """Truncate all files to a checkpoint's position; to nothing if there is no checkpoint.

        Raises:
            SentinelError: if the metrics differ from the metrics at the checkpoint, or a file cannot be written.
        """
        if not self.writes:
            return
        lines = 0 if position is None else int(position["lines"])
        text = _truncate(self.metrics, lines)
        if position is not None and hashlib.sha256(text).hexdigest() != position["sha256"]:
            raise SentinelError(
                f"{self.metrics} differs from the checkpoint, expected the {lines} lines that the run wrote: "
                "name another folder with out=DIR"
            )
        _truncate(self.timing, sum(step <= lines for step in _steps(self.timing)))
        sizes = {} if position is None else position.get("sizes", {})
        for name, path in self.logs.items():
            if path.exists() and path.stat().st_size > (size := int(sizes.get(name, 0))):
                with _write_errors_in_one_line(path):
                    os.truncate(path, size)


def _require_resumable(directory: RunDirectory, recipe: Recipe, folder: Path) -> None:
    """Reject a run of another recipe, or with more steps than the recipe has."""
    if not directory.started or directory.recipe is None:
        return
    keys = differing_keys(recipe, directory.recipe)
    if keys:
        difference = f"{', '.join(keys)} differ{'s' if len(keys) == 1 else ''}"
        raise SentinelError(
            f"out[{folder}] has a run of another recipe ({difference}): name another folder with out=DIR"
        )
    if recipe.steps < directory.steps:
        raise SentinelError(
            f"steps is {recipe.steps}, expected at least {directory.steps}, the steps that are done in {folder}: "
            "raise steps, or name another folder with out=DIR"
        )


def _steps(path: Path) -> list[int]:
    """The steps of a file's complete lines; the directory was inspected, so they are valid."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [int(json.loads(line)["step"]) for line in lines]


def _truncate(path: Path, lines: int) -> bytes:
    text = path.read_bytes() if path.exists() else b""
    kept_text = b"".join(text.splitlines(keepends=True)[:lines])
    if kept_text != text:
        _replace(path, kept_text)
    return kept_text


def _replace(path: Path, text: bytes) -> None:
    """Write a file atomically."""
    partial = path.with_suffix(".aside")
    with _write_errors_in_one_line(path):
        try:
            partial.write_bytes(text)
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise


@contextmanager
def _write_errors_in_one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        fix = f"{'make room' if full else 'fix this'}, and run the same command to resume from the newest checkpoint"
        raise SentinelError(f"{path} cannot be written ({error.strerror}): {fix}") from error


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the steps of a JSON lines file: objects with a step, whose values are numbers.

    Raises:
        SentinelError: if the file cannot be read or is empty, or a line is invalid; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise SentinelError(
            f"{path} does not exist, expected the metrics of a run: wait for the first step, or name the folder of "
            "another run"
        ) from error
    except OSError as error:
        raise SentinelError(f"{path} cannot be read ({error.strerror}), expected a file with metrics") from error
    except ValueError as error:
        raise SentinelError(f"{path} is not UTF-8 ({error}), expected a JSON object per line: {_NAME_A_RUN}") from error
    if not text:
        raise SentinelError(
            f"{path} is empty, expected a JSON object per line: wait for the first step, or name another run"
        )
    return [_parse_step(line, f"{path} line {number}") for number, line in enumerate(text, 1)]


def read_evaluations(folders: Sequence[tuple[str, Path]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The evaluations of runs, by name and folder; runs without evaluations are left out.

    Raises:
        SentinelError: as for :func:`read_metrics`.
    """
    places = [(name, folder / "evaluation.jsonl") for name, folder in folders]
    return [(name, read_metrics(place)) for name, place in places if place.exists() and place.stat().st_size]


def _parse_step(line: str, where: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SentinelError(
            f"{where} cannot be read ({error}), expected a JSON object per line: {_NAME_A_RUN}"
        ) from error
    if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
        raise SentinelError(f"{where} is {line[:40]!r}, expected an object whose step is an integer: {_NAME_A_RUN}")
    for key, value in entry.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise SentinelError(f"{where}: {key[:40]!r} is {shortened(value)}, expected a number: {_NAME_A_RUN}")
        if isinstance(value, int) and abs(value) >= 2**63:
            expected = "an integer whose absolute value is below 2**63"
            raise SentinelError(f"{where}: {key[:40]!r} is {shortened(value)}, expected {expected}: {_NAME_A_RUN}")
    return entry
