"""``audit rl_sentinel``: nothing is broken, and each pair was tried or has a reviewed reason."""

import json
from pathlib import Path
from typing import Any

import applicability
import pytest
from typer.testing import CliRunner

from rl_sentinel.cli.main import app

TABLE = Path(__file__).parents[2] / "docs" / "not-applicable.toml"


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The verdicts of a real audit of the library by its own command."""
    report = tmp_path_factory.mktemp("self") / "report.json"
    ran = CliRunner().invoke(app, ["audit", "rl_sentinel", "--level", "hazard", "--json", str(report)])
    assert ran.exit_code == 0, ran.output
    judged: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["verdicts"]
    return judged


@pytest.mark.slow
def test_nothing_is_broken(verdicts: list[dict[str, Any]]) -> None:
    assert {v["outcome"] for v in verdicts} == {"holds", "not-applicable"}
    assert all(v["tried"] > 0 for v in verdicts if v["outcome"] == "holds")


@pytest.mark.slow
def test_not_applicable_is_reviewed(verdicts: list[dict[str, Any]]) -> None:
    rows, reviewed = applicability.read(TABLE.read_text(encoding="utf-8"))
    assert rows == applicability.table(verdicts)
    assert [key for key, why in reviewed.items() if len(why) < 20] == []


def test_table_is_written_and_read() -> None:
    skipped = {"law": "MSK001", "outcome": "not-applicable", "reason": "the boundary reads no mask"}
    rows = applicability.table([skipped, {**skipped, "outcome": "holds", "reason": ""}, skipped])
    key = ("MSK001", "the boundary reads no mask")
    text = applicability.written(rows, {key: "so it is"})
    assert applicability.read(text) == ({key: 2}, {key: "so it is"}) == (rows, {key: "so it is"})
    assert applicability.read(applicability.written(rows, {}))[1] == {key: ""}
