"""Read the rows of a data set: a JSON lines file, or a folder that the library ``datasets`` saved."""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.paths import expanded
from rl_sentinel.core.phrasing import reason_of

#: One row: its values by column.
Row = Mapping[str, Any]


@lru_cache(maxsize=8)
def load_rows(path: str, split: str = "") -> tuple[Row, ...]:
    """The rows of a file or folder, in order.

    Args:
        path: a file with a JSON object per line, or a folder of ``datasets``' ``save_to_disk``.
        split: the split of a folder that has several.

    Raises:
        SentinelError: if the path, the split or a line is not valid, or there are no rows.
    """
    file_or_folder = expanded(path, "environment.file")
    rows = _from_folder(file_or_folder, split) if file_or_folder.is_dir() else _from_lines(file_or_folder, split)
    if not rows:
        raise SentinelError(f"environment.file {path} has no rows, expected at least one row")
    return rows


def _from_lines(path: Path, split: str) -> tuple[Row, ...]:
    if split and path.exists():
        raise SentinelError(
            f"environment.split is {split!r}, but {path} is a file, expected no split: only a folder of `datasets` has "
            "splits"
        )
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        reason, expected = getattr(error, "strerror", None) or error, "a JSON object per line"
        fix = "name such a file, or fix this one"
        raise SentinelError(f"environment.file {path} cannot be read ({reason}), expected {expected}: {fix}") from error
    return tuple(_parse(line, f"environment.file {path} line {n}") for n, line in enumerate(lines, 1) if line.strip())


def _parse(line: str, where: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SentinelError(f"{where} cannot be read ({error}), expected a JSON object: fix this line") from error
    if not isinstance(row, dict):
        raise SentinelError(f"{where} is {line[:40]!r}, expected a JSON object with a value per column: fix this line")
    return row


def _from_folder(path: Path, split: str) -> tuple[Row, ...]:
    try:
        import datasets  # noqa: PLC0415 - never required
    except ImportError as error:
        fix = "pip install datasets, or name a JSON lines file"
        raise SentinelError(
            f"environment.file {path} is a folder, which needs datasets ({reason_of(error)}): {fix}"
        ) from error
    try:
        data = datasets.load_from_disk(str(path))
    except Exception as error:  # datasets raises errors of many types for other folders
        raise SentinelError(
            f"environment.file {path} cannot be loaded ({reason_of(error)}), expected a folder that "
            "save_to_disk of `datasets` wrote"
        ) from error
    if isinstance(data, Mapping):
        if split not in data:
            splits = ", ".join(map(str, data))
            raise SentinelError(
                f"environment.split is {split!r}, expected one of {splits}: the folder has several splits"
            )
        data = data[split]
    elif split:
        raise SentinelError(
            f"environment.split is {split!r}, expected no split: the folder {path} has only one data set"
        )
    return tuple(dict(row) for row in data)
