"""Inspect a run's directory before a run starts in it: empty, an earlier run, or files of something else."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Recipe, parse_recipe

_CHOOSE_ANOTHER = "name another folder with out=DIR"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The contents of a run's directory: its recipe, the number of logged steps, and whether it has a checkpoint."""

    recipe: Recipe | None
    steps: int
    has_checkpoint: bool

    @property
    def started(self) -> bool:
        """Whether a step was done; a run that failed before its first step leaves only its recipe."""
        return self.steps > 0 or self.has_checkpoint

    @classmethod
    def inspect(cls, folder: Path) -> Self:
        """Read a directory without changing it.

        Raises:
            SentinelError: if it has a file with the name of a run's file that no run wrote.
        """
        logs = [folder / f"{name}.jsonl" for name in ("metrics", "timing")]
        checkpoints = folder / "checkpoints"
        try:
            recipe = _read_recipe(folder / "recipe.json", folder)
            steps = max(_count_steps(log) for log in logs)
            if checkpoints.exists() and not checkpoints.is_dir():
                raise SentinelError(f"{checkpoints} is a file, expected a folder of a run: {_CHOOSE_ANOTHER}")
            contents = cls(recipe, steps, any(checkpoints.glob("step-*")))
        except OSError as error:
            raise SentinelError(f"out[{folder}] cannot be read ({error.strerror}): {_CHOOSE_ANOTHER}") from error
        logged = any(log.exists() and log.stat().st_size for log in logs)
        if (contents.started or logged) and recipe is None:
            raise SentinelError(f"out[{folder}] has files of a run but no recipe.json: {_CHOOSE_ANOTHER}")
        return contents


def _read_recipe(place: Path, folder: Path) -> Recipe | None:
    if not place.exists():
        return None
    try:
        return parse_recipe({**json.loads(_read(place).decode()), "out": str(folder)}, where=str(place))
    except (ValueError, TypeError, RecursionError, SentinelError) as error:
        words = " ".join(str(error).split())
        raise SentinelError(f"{place} cannot be read ({words}), expected a run's recipe: {_CHOOSE_ANOTHER}") from error


def _count_steps(place: Path) -> int:
    """The number of complete lines; a killed run may leave an incomplete line at the end."""
    lines = _read(place).split(b"\n")[:-1] if place.exists() else []
    for number, line in enumerate(lines, 1):
        if not _is_step(line, number):
            shown = line[:40].decode(errors="replace")
            raise SentinelError(
                f"{place} line {number} is {shown!r}, expected step {number} of a run: {_CHOOSE_ANOTHER}"
            )
    return len(lines)


def _is_step(line: bytes, number: int) -> bool:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(entry, dict) and entry.get("step") == number


def _read(place: Path) -> bytes:
    if not place.is_file():
        raise SentinelError(f"{place} is not a file, expected a run's file: {_CHOOSE_ANOTHER}")
    return place.read_bytes()
