"""``rl-sentinel export``: one line on what cannot be exported."""

from pathlib import Path

import pytest

from command_line import error_line


def test_folder_without_a_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = error_line(capsys, "export", str(tmp_path), str(tmp_path / "new"))
    needs = "export needs transformers, which cannot be imported"
    assert line.startswith((f"{tmp_path} has no recipe.json, expected the folder of a run", needs))
    assert not (tmp_path / "new").exists()
