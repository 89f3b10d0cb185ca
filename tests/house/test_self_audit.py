"""``audit rl_sentinel``: nothing broken, and each pair tried or in the reviewed table."""

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
    found: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["verdicts"]
    return found


def test_nothing_is_broken(verdicts: list[dict[str, Any]]) -> None:
    """Every pair holds or is not applicable, and what holds was tried."""
    assert {v["outcome"] for v in verdicts} == {"holds", "not-applicable"}
    assert all(v["tried"] > 0 for v in verdicts if v["outcome"] == "holds")


def test_not_applicable_is_reviewed(verdicts: list[dict[str, Any]]) -> None:
    """The table has exactly the pairs that were not tried, each with a reason and a review."""
    pairs, reviewed = applicability.read(TABLE.read_text(encoding="utf-8"))
    assert pairs == applicability.table(verdicts)
    assert [key for key, why in reviewed.items() if len(why) < 20] == []


def test_table_is_written_and_read() -> None:
    """A new pair comes with an empty review, an old one keeps its own."""
    said = {"law": "MSK001", "outcome": "not-applicable", "reason": "it reads no mask", "setting": "default"}
    held = {"law": "MSK001", "outcome": "holds", "reason": "", "setting": "default", "boundary": "rl_sentinel.signal.b"}
    found = applicability.table([said | {"boundary": "rl_sentinel.signal.a"}, held])
    pairs, reviewed = applicability.read(applicability.written(found, {("MSK001", "it reads no mask"): "so it is"}))
    assert pairs == found == {("MSK001", "it reads no mask"): ["a [default]"]}
    assert reviewed == {("MSK001", "it reads no mask"): "so it is"}
    assert applicability.read(applicability.written(found, {}))[1] == {("MSK001", "it reads no mask"): ""}
