"""The fake of data sets with nested columns of one type."""

import json
from pathlib import Path

from rl_sentinel.adapters.kit.hub_rows import HubRows, one_type


def test_rows_of_a_file(tmp_path: Path) -> None:
    """A dict that lacks a key of another row has it with the value None; a list keeps its length."""
    rows = [{"label": "a", "tools": [{"name": "x"}, {"size": 1}]}, {"label": "b", "tools": []}]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    first, second = HubRows.from_json(str(path))
    assert first == {"label": "a", "tools": [{"name": "x", "size": None}, {"name": None, "size": 1}]}
    assert second == rows[1]


def test_rows_of_one_type_are_kept() -> None:
    """Rows with the same keys, or without dicts, do not change."""
    rows = [{"a": [1, 2], "b": None}, {"a": [], "b": None}]
    assert one_type(rows) == rows
    assert one_type([[1], [2, 3]]) == [[1], [2, 3]]
