"""Read the rows that an unfinished recall measurement has written, to resume it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.recall.bugs import Bug
from rl_sentinel.recall.comparison import Comparison
from rl_sentinel.recall.measurement import Controls, Row
from rl_sentinel.recall.narrow_audit import Judged


def earlier_rows(path: Path, bugs: Sequence[Bug]) -> dict[str, Row]:
    """Id -> row, for the rows of a file of ``recall --json``; empty if there is no such file yet.

    Args:
        path: the file.
        bugs: the corpus; rows of other bugs are left out.

    Raises:
        SentinelError: if the file cannot be read, or was not written by ``recall --json``.
    """
    if not path.exists():
        return {}
    by_id = {bug.id: bug for bug in bugs}
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return {row["id"]: _row(row, by_id[row["id"]]) for row in rows if row["id"] in by_id}
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise SentinelError(
            f"--json {path} cannot be resumed ({reason}), expected a file that recall --json wrote: name another file, "
            "or delete this file to start again"
        ) from error


def _row(row: dict[str, Any], bug: Bug) -> Row:
    found = tuple(Judged(**{name: _plain(value) for name, value in one.items()}) for one in row["found"])
    controls = Controls(**row["controls"])
    return Row(bug, Comparison(row["outcome"], found, row["detail"]), tuple(row["functions"]), controls)


def _plain(value: Any) -> Any:  # noqa: ANN401 - a value of JSON
    return tuple(value) if isinstance(value, list) else value
