"""Inspect a run's directory before a run starts in it: empty, an earlier run, or files of something else."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Recipe, parse_recipe

#: Names of log files beside the metrics and the times.
FURTHER_LOGS = ("completions", "evaluation")

_CHOOSE_ANOTHER = "name another folder with out=DIR"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The contents of a run's directory: its recipe, the number of logged steps, and whether it has a checkpoint."""

    recipe: Recipe | None
    steps: int
    has_checkpoint: bool

    @property
    def started(self) -> bool:
        """Whether a step was done; a run may fail before its first step."""
        return self.steps > 0 or self.has_checkpoint

    @classmethod
    def inspect(cls, folder: Path) -> Self:
        """Read a directory without changing it.

        Raises:
            SentinelError: if the directory cannot be read, no run wrote a file that has the name of a run's file, or
                ``recipe.json`` is missing beside other files of a run.
        """
        metrics, timing = (folder / f"{name}.jsonl" for name in ("metrics", "timing"))
        further = [folder / f"{name}.jsonl" for name in FURTHER_LOGS]
        checkpoints = folder / "checkpoints"
        try:
            recipe = _read_recipe(folder / "recipe.json", folder)
            steps = max(_last_step(metrics, gaps=False), _last_step(timing, gaps=True))
            if checkpoints.exists() and not checkpoints.is_dir():
                raise SentinelError(f"{checkpoints} is a file, expected a folder of checkpoints: {_CHOOSE_ANOTHER}")
            contents = cls(recipe, steps, any(checkpoints.glob("step-*")))
        except OSError as error:
            raise SentinelError(f"out[{folder}] cannot be read ({error.strerror}): {_CHOOSE_ANOTHER}") from error
        logged = any(log.exists() and log.stat().st_size for log in (metrics, timing, *further))
        if (contents.started or logged) and recipe is None:
            raise SentinelError(f"out[{folder}] has files of a run but no recipe.json: {_CHOOSE_ANOTHER}")
        return contents


def _read_recipe(path: Path, folder: Path) -> Recipe | None:
    if not path.exists():
        return None
    try:
        return parse_recipe({**json.loads(_read(path).decode()), "out": str(folder)}, where=str(path))
    except (ValueError, TypeError, RecursionError, SentinelError) as error:
        reason = " ".join(str(error).split())
        raise SentinelError(f"{path} cannot be read ({reason}), expected a run's recipe: {_CHOOSE_ANOTHER}") from error


def _last_step(path: Path, *, gaps: bool) -> int:
    """The step of the last complete line, 0 without one; a killed run may leave an incomplete line at the end.

    With ``gaps``, steps may be missing, such as the timing of a step during whose checkpoint the run was killed.
    """
    lines, last = _read(path).split(b"\n")[:-1] if path.exists() else [], 0
    for number, line in enumerate(lines, 1):
        step, expected = _step(line), last + 1
        if step is None or step < expected or (step > expected and not gaps):
            start = line[:40].decode(errors="replace")
            raise SentinelError(
                f"{path} line {number} is {start!r}, expected step {expected} of a run: {_CHOOSE_ANOTHER}"
            )
        last = step
    return last


def _step(line: bytes) -> int | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = entry.get("step") if isinstance(entry, dict) else None
    return step if isinstance(step, int) and not isinstance(step, bool) else None


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise SentinelError(f"{path} is not a file, expected a run's file: {_CHOOSE_ANOTHER}")
    return path.read_bytes()
