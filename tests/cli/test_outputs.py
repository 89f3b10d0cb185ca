"""What an audit leaves on disk."""

import json
from pathlib import Path

import pytest

from report_fixtures import finding
from rl_sentinel.audit.findings import Audit, Finding
from rl_sentinel.audit.source.target_spec import parse_target
from rl_sentinel.cli.outputs import STDOUT, Outputs
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.report.results import Results

TARGET = parse_target("verl==1.0")


def _results(*found: Finding, target: str = "verl==1.0") -> Results:
    return Results(target=target, audit=Audit(), findings=found)


def _outputs(folder: Path) -> Outputs:
    reports = [f"issue={folder / 'i'}", f"repro={folder / 'r'}"]
    return Outputs.checked(reports, folder / "o.json", folder / "k.toml")


def test_nothing_is_written_before_the_end(tmp_path: Path) -> None:
    outputs = _outputs(tmp_path)
    outputs.add(TARGET, _results(finding()), "1.0")
    assert list(tmp_path.iterdir()) == []
    outputs.write()
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == [
        "i/MSK001-estimator-default.md",
        "k.toml",
        "o.json",
        "r/MSK001-estimator-default.json",
        "r/MSK001-estimator-default.py",
    ]
    assert json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))["target"] == "verl==1.0"
    assert 'signature = "verl:MSK001:m.estimator:default"' in (tmp_path / "k.toml").read_text(encoding="utf-8")


def test_reports_for_other_tools(tmp_path: Path) -> None:
    kinds = {"html": "<!doctype html>", "junit": "<?xml", "markdown": "## RL-Sentinel", "sarif": "{"}
    outputs = Outputs.checked([f"{kind}={tmp_path / kind}" for kind in kinds], None, None)
    outputs.add(TARGET, _results(finding()), "1.0")
    outputs.write()
    for kind, start in kinds.items():
        assert (tmp_path / kind).read_text(encoding="utf-8").startswith(start), kind


def test_json_on_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = Outputs.checked([], STDOUT, None)
    outputs.add(TARGET, _results(finding()), "1.0")
    outputs.write()
    assert json.loads(capsys.readouterr().out)["findings"][0]["law"] == "MSK001"
    assert list(tmp_path.iterdir()) == []


def test_several_targets_share_every_output(tmp_path: Path) -> None:
    outputs = _outputs(tmp_path)
    made: list[Finding] = [finding(), finding(boundary="n.estimator"), finding()]
    for f in made:
        outputs.add(TARGET, _results(f, target=f.boundary), "1.0")
    outputs.write()
    seen = json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))
    assert [o["target"] for o in seen] == ["m.estimator", "n.estimator", "m.estimator"]
    assert len(list((tmp_path / "i").glob("*.md"))) == 3
    assert sorted(p.name for p in (tmp_path / "r").glob("*.py")) == [
        "MSK001-m.estimator-default-2.py",
        "MSK001-m.estimator-default.py",
        "MSK001-n.estimator-default.py",
    ]


def test_files_of_long_paths(tmp_path: Path) -> None:
    """Several steps with the same last function, whose paths are longer than a file name can be."""
    outputs = _outputs(tmp_path)
    for package in ("first", "second", "ünïcode" * 30):
        path = " -> ".join(f"{package}.{'package.' * 12}Step{number}.estimator" for number in range(4))
        outputs.add(TARGET, _results(finding(boundary=path, setting="setting " * 20)), "1.0")
    outputs.write()
    names = [p.name for p in (tmp_path / "r").glob("*.py")]
    assert len(names) == 3
    assert all(len(name.encode()) < 240 for name in names)


@pytest.mark.parametrize("given", ["pdf=x", "issue", "issue=", "=x"])
def test_report_of_another_kind(given: str) -> None:
    with pytest.raises(
        SentinelError,
        match=rf"^--report is '{given}', expected html=FILE, "
        r"junit=FILE, markdown=FILE, sarif=FILE, issue=FOLDER or repro=FOLDER$",
    ):
        Outputs.checked([given], None, None)


def test_one_file_for_two_outputs(tmp_path: Path) -> None:
    same = tmp_path / "out"
    with pytest.raises(SentinelError, match="out is named twice, and one output would overwrite the other"):
        Outputs.checked([f"html={same}"], tmp_path / "." / "out", None)
    assert Outputs.checked([f"html={same}"], tmp_path / "other", None).json_path == tmp_path / "other"
