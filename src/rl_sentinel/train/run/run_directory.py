"""What lies in a folder before a run begins there: nothing, a run of ours, or files of others, which are left alone."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Recipe, made

_OTHER = "name another folder with out=DIR"


@dataclass(frozen=True, slots=True)
class Past:
    """The recipe that lies there, how many steps were told, and whether there is a checkpoint."""

    recipe: Recipe | None
    steps: int
    saved: bool

    @property
    def begun(self) -> bool:
        """Whether anything was done; a run that failed before its first step has its recipe alone."""
        return self.steps > 0 or self.saved

    @classmethod
    def found(cls, folder: Path) -> Self:
        """Read a folder and change nothing in it.

        Raises:
            SentinelError: if a file of a run's names is there that no run wrote.

        Example:
            >>> from pathlib import Path
            >>> from rl_sentinel.train.run.run_directory import Past
            >>> Past.found(Path("nowhere"))
            Past(recipe=None, steps=0, saved=False)
        """
        try:
            recipe = _recipe(folder / "recipe.json", folder)
            steps = max(_steps(folder / f"{name}.jsonl") for name in ("metrics", "timing"))
            checkpoints = folder / "checkpoints"
            if checkpoints.exists() and not checkpoints.is_dir():
                raise SentinelError(f"{checkpoints} is a file, expected a folder of a run: {_OTHER}")
            found = cls(recipe, steps, any(checkpoints.glob("step-*")))
        except OSError as error:
            raise SentinelError(f"out[{folder}] cannot be read ({error.strerror}): {_OTHER}") from error
        written = any(_size(folder / f"{name}.jsonl") for name in ("metrics", "timing"))
        if (found.begun or written) and recipe is None:
            raise SentinelError(f"out[{folder}] holds files of a run and no recipe.json, expected both: {_OTHER}")
        return found


def _recipe(place: Path, folder: Path) -> Recipe | None:
    if not place.exists():
        return None
    try:
        told = _filled(json.loads(_read(place).decode()))
        return made({**told, "out": str(folder)}, where=str(place))
    except (ValueError, TypeError, RecursionError, SentinelError) as error:
        words = " ".join(str(error).split())
        raise SentinelError(f"{place} cannot be read ({words}), expected the recipe of a run: {_OTHER}") from error


def _steps(place: Path) -> int:
    """How many whole lines; what follows the last of them is a line that a killed run did not end."""
    lines = _read(place).split(b"\n")[:-1] if place.exists() else []
    for number, line in enumerate(lines, 1):
        if not _is_step(line, number):
            shown = line[:40].decode(errors="replace")
            raise SentinelError(f"{place} line {number} is {shown!r}, expected step {number} of a run: {_OTHER}")
    return len(lines)


def _is_step(line: bytes, number: int) -> bool:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("step") == number


def _size(place: Path) -> int:
    return place.stat().st_size if place.exists() else 0


def _read(place: Path) -> bytes:
    if not place.is_file():
        raise SentinelError(f"{place} is no file, expected what a run wrote: {_OTHER}")
    return place.read_bytes()


def _filled(told: Any) -> Any:  # noqa: ANN401 - what JSON holds
    """Without what is null: a table that the recipe does not have."""
    return {k: _filled(v) for k, v in told.items() if v is not None} if isinstance(told, dict) else told
