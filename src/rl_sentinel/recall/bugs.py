"""Read known bugs from a file with one JSON object per line; each has the revisions or releases around its fix."""

from pathlib import Path
from typing import Literal

import pydantic

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import expected, reason_of, shortened


class Releases(pydantic.BaseModel):
    """The releases around a fix, by their numbers on the package index: ``last`` has the bug, ``fixed_in`` does not.

    Other fields, such as the first release with the bug, are ignored.
    """

    model_config = pydantic.ConfigDict(extra="ignore", strict=True, frozen=True)

    last: str = ""
    fixed_in: str = ""


class Bug(pydantic.BaseModel):
    """A known bug: its place in the code, and the revisions or releases before and after its fix.

    ``file`` and ``function`` name the code before the fix (at ``parent_commit``); ``cpu`` says whether the bug shows on
    a CPU. Other fields are ignored.
    """

    model_config = pydantic.ConfigDict(extra="ignore", strict=True, frozen=True)

    id: str
    framework: str
    file: str
    function: str
    cpu: Literal["yes", "hard", "no"] = "yes"
    title: str = ""
    parent_commit: str | None = None
    fix_commit: str | None = None
    releases: Releases = Releases()


def read_bugs(path: Path) -> list[Bug]:
    """The rows of a file, in order.

    Raises:
        SentinelError: if the file cannot be read, or a row is invalid; the message names the line and the field.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SentinelError(f"known bugs cannot be read from {path} ({reason_of(error)}): name a JSONL file") from error
    bugs = [_bug(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not bugs:
        raise SentinelError(f"{path} has no known bugs, expected a JSON object per line: name a JSONL file")
    return bugs


def _bug(path: Path, number: int, line: str) -> Bug:
    try:
        return Bug.model_validate_json(line)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        field, value = ".".join(map(str, first["loc"])), shortened(first["input"])
        wrong = f"{field} is {value}{expected(first['msg'])}" if field else f"row is invalid ({first['msg']})"
        wrong = f"{field} is missing, expected a value" if first["type"] == "missing" else wrong
        raise SentinelError(f"{path}:{number}: {wrong}: fix this row") from error
