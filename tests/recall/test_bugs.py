"""Rows of a file of known bugs."""

import json
from pathlib import Path

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.recall.bugs import Releases, read_bugs

ROW = {"id": "one", "framework": "verl", "file": "verl/losses.py", "function": "loss"}


def test_fields_that_are_not_needed_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "bugs.jsonl"
    path.write_text(json.dumps({**ROW, "date": None, "releases": {"last": "v0.1", "first": "v0.0"}}) + "\n\n")
    (bug,) = read_bugs(path)
    assert (bug.id, bug.cpu, bug.parent_commit) == ("one", "yes", None)
    assert bug.releases == Releases(last="v0.1")


def test_errors_name_line_and_field(tmp_path: Path) -> None:
    path = tmp_path / "bugs.jsonl"
    path.write_text(f"{json.dumps(ROW)}\n{json.dumps({**ROW, 'file': 3})}\n")
    with pytest.raises(SentinelError, match=r"bugs.jsonl:2: file is 3, expected a valid string: fix this row$"):
        read_bugs(path)
    with pytest.raises(SentinelError, match="cannot be read from"):
        read_bugs(tmp_path / "absent.jsonl")
