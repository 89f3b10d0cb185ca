"""Two reports, or two source trees, compared pair by pair."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from compare_verdicts import main


def _verdict(law: str, outcome: str, **more: Any) -> dict[str, Any]:
    return {"law": law, "boundary": "m.f", "setting": "default", "outcome": outcome, "reason": "", **more}


def _report(*verdicts: Mapping[str, Any], target: str = "verl==1.0") -> dict[str, Any]:
    return {"target": target, "findings": [], "verdicts": list(verdicts)}


def _saved(folder: Path, name: str, report: object) -> str:
    file = folder / name
    file.write_text(json.dumps(report), encoding="utf-8")
    return str(file)


def _compared(folder: Path, old: object, new: object) -> int:
    return main([_saved(folder, "old.json", old), _saved(folder, "new.json", new)])


def test_equal_reports_do_not_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reasons and sentences alone are no difference."""
    old = _report(_verdict("A", "broken", level="fault", sentence="x"), _verdict("B", "not-applicable", reason="old"))
    new = _report(_verdict("A", "broken", level="fault", sentence="y"), _verdict("B", "not-applicable", reason="new"))
    assert _compared(tmp_path, old, new) == 0
    assert capsys.readouterr().out == "0 of 2 pairs differ\n"


def test_every_difference_is_printed_with_its_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Outcomes, levels, and pairs that only one side has, grouped."""
    old = _report(
        _verdict("A", "holds"),
        _verdict("B", "broken", level="fault", sentence="loss is NaN"),
        _verdict("C", "not-applicable", reason="no claim"),
    )
    new = _report(
        _verdict("A", "errored", reason="it\n  died"),
        _verdict("B", "broken", level="hazard", sentence="loss is NaN"),
        _verdict("D", "holds"),
    )
    assert _compared(tmp_path, old, new) == 1
    assert capsys.readouterr().out.splitlines() == [
        "A changed: holds -> errored  [1]",
        "    m.f [default]",
        "      new: it died",
        "B changed: broken (fault) -> broken (hazard)  [1]",
        "    m.f [default]",
        "      old: loss is NaN",
        "      new: loss is NaN",
        "C lost: not-applicable  [1]",
        "    m.f [default]",
        "      no claim",
        "D gained: holds  [1]",
        "    m.f [default]",
        "4 of 4 pairs differ",
    ]


def test_level_of_an_older_report_is_read_from_its_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its verdicts state none; where no finding states one either, only outcomes are compared."""
    old = _report(_verdict("A", "broken"), _verdict("B", "broken"))
    shown = {"law": "A", "boundary": "m.f", "setting": "default", "level": "contested"}
    old["findings"] = [{"signature": "verl:A:m.f:default", "evidence": shown}]
    new = _report(_verdict("A", "broken", level="fault"), _verdict("B", "broken", level="fault"))
    assert _compared(tmp_path, old, new) == 1
    assert capsys.readouterr().out.splitlines()[0] == "A changed: broken (contested) -> broken (fault)  [1]"


def test_several_targets_are_compared_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In any order."""
    one, two = _report(_verdict("A", "holds")), _report(_verdict("A", "errored"), target="verl==2.0")
    assert _compared(tmp_path, [one, two], [two, one]) == 0
    assert _compared(tmp_path, [one, two], [one, _report(target="verl==2.0")]) == 1
    assert "    verl==2.0 m.f [default]" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read (No such file or directory), expected a report or a tree"),
        ("{", "is malformed ("),
        ("{}", "has no 'findings', expected a report of `audit --json`"),
        ("3", "is malformed ("),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, words: str
) -> None:
    """With the file's name, on standard error."""
    file = tmp_path / "r.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    assert main([str(file), str(file)]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"compare_verdicts: {file} {words}")
    assert message.count("\n") == 1


_TREE = """
import json, sys
def run():
    at = sys.argv.index("--json")
    assert sys.argv[1:at] == ["audit", "verl==1.0", "--level", "hazard"]
    verdict = {"law": "A", "boundary": "m.f", "setting": "s", "outcome": OUTCOME}
    json.dump({"target": "verl==1.0", "findings": [], "verdicts": [verdict]}, open(sys.argv[at + 1], "w"))
    sys.exit(1)
"""


def _tree(folder: Path, code: str) -> str:
    package = folder / "src" / "rl_sentinel"
    (package / "cli").mkdir(parents=True)
    for file, text in {"__init__.py": "", "cli/__init__.py": "", "cli/main.py": code}.items():
        (package / file).write_text(text, encoding="utf-8")
    return str(folder)


def test_source_trees_are_run_in_processes_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each with its own code; one that writes no report is bad input."""
    old = _tree(tmp_path / "old", _TREE.replace("OUTCOME", '"holds"'))
    new = _tree(tmp_path / "new", _TREE.replace("OUTCOME", '"errored"'))
    failing = _tree(tmp_path / "failing", "import sys\ndef run():\n    sys.exit('rl-sentinel: no network')\n")
    assert main([old, old, "verl==1.0"]) == 0
    assert main([old, new, "verl==1.0"]) == 1
    assert "A changed: holds -> errored  [1]" in capsys.readouterr().out
    assert main([old, failing, "verl==1.0"]) == 2
    assert capsys.readouterr().err.endswith("wrote no report: rl-sentinel: no network\n")
    assert main([old, new]) == 2
    assert "expected a TARGET that it audits" in capsys.readouterr().err
    assert main([str(tmp_path), new, "verl==1.0"]) == 2
    assert "expected src/rl_sentinel in it" in capsys.readouterr().err
