"""Rows of an unfinished measurement."""

import json
from pathlib import Path

from rl_sentinel.recall.bugs import Bug
from rl_sentinel.recall.comparison import Comparison
from rl_sentinel.recall.earlier_rows import earlier_rows
from rl_sentinel.recall.measurement import Controls, Row
from rl_sentinel.recall.narrow_audit import Judged
from rl_sentinel.recall.page import as_json


def test_rows_are_read_as_they_were_measured(tmp_path: Path) -> None:
    """A row of a bug that the corpus no longer has is left out."""
    kept, gone = (Bug(id=name, framework="verl", file="a.py", function="f", cpu="yes") for name in ("kept", "gone"))
    found = (Judged("MSK001", "a.f", "default", "broken", level="fault", broken=("x",), held=("y",)),)
    row = Row(kept, Comparison("caught", found, "why"), ("a.py:f",), Controls(other_function=False))
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(as_json([row, Row(gone, Comparison("holds"))])), encoding="utf-8")
    assert earlier_rows(file, [kept]) == {"kept": row}
    assert earlier_rows(tmp_path / "none.json", [kept]) == {}
