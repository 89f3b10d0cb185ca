"""Evidence files: whole, cut, foreign, edited."""

import json
from pathlib import Path
from typing import Any

import pytest

from report_fixtures import evidence
from rl_sentinel.audit.repro.evidence_file import stored
from rl_sentinel.core.errors import SentinelError


def _file(folder: Path, data: Any) -> Path:
    file = folder / "e.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return file


def _report(*records: Any) -> dict[str, Any]:
    return {"target": "verl==1.0", "findings": [{"evidence": r} for r in records]}


def test_one_record_a_report_and_several_reports_are_read(tmp_path: Path) -> None:
    one, other = evidence(), evidence(setting="no-std")
    assert stored(_file(tmp_path, one)) == [one]
    assert stored(_file(tmp_path, _report(one, other))) == [one, other]
    assert stored(_file(tmp_path, [_report(one), _report(), _report(other)])) == [one, other]


def test_draw_that_its_law_does_not_make_is_told(tmp_path: Path) -> None:
    record = evidence()
    record["constructed_scenario"]["draw"] = {"x": "y"}
    file = _file(tmp_path, record)
    with pytest.raises(SentinelError) as told:
        stored(file)
    assert str(told.value) == (
        f"evidence {file}[constructed_scenario]: draw has x, expected variant of MSK001: the file was "
        "edited, so audit again"
    )


REPORT = "expected a report of an audit: name a file that audit --json wrote"
NAMES = "expected a finding of an audit: audit again"


def test_evidence_of_both_schemas_is_read(tmp_path: Path) -> None:
    for schema in (1, 2):
        assert stored(_file(tmp_path, evidence(schema=schema)))[0]["schema"] == schema
    with pytest.raises(
        SentinelError,
        match=r"has schema 3, expected 1 or 2: another version of rl-sentinel wrote the file, so audit again$",
    ):
        stored(_file(tmp_path, evidence(schema=3)))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"findings": 3}, f"[findings] is not a list, {REPORT}"),
        ([3], f"[findings] is missing, {REPORT}"),
        ([{"findings": []}, {}], f"[1.findings] is missing, {REPORT}"),
        ({"findings": [{}]}, f"[findings.0.evidence] is not an object, {NAMES}"),
        ({"findings": []}, " has no finding, expected a report with findings to replay"),
        ([], " has no finding, expected a report with findings to replay"),
        (3, f"[top] is not an object, {NAMES}"),
        ({}, f"[kind] is missing, {NAMES}"),
        (
            evidence(kind="x"),
            " is 'x', expected 'rl_sentinel_training_signal_validation': name a file that audit --json wrote",
        ),
        (evidence(target={}), f"[target] lacks 'spec', {NAMES}"),
        ("[" * 100_000, " is nested too deeply, expected JSON that an audit wrote"),
        (
            "no",
            " is damaged (Expecting value: line 1 column 1 (char 0)), expected JSON that an audit wrote",
        ),
    ],
)
def test_what_is_no_evidence_is_told_in_one_line(tmp_path: Path, data: Any, words: str) -> None:
    file = _file(tmp_path, data)
    with pytest.raises(SentinelError) as told:
        stored(file)
    assert str(told.value) == f"evidence {file}{words}"


def test_edited_record_is_told(tmp_path: Path) -> None:
    with pytest.raises(SentinelError, match=r"\[law\] is 'XYZ999', expected the code of a law: audit again"):
        stored(_file(tmp_path, evidence(law="XYZ999")))
    record = evidence()
    record["constructed_scenario"]["draw"] = {"variant": 10**6}
    with pytest.raises(SentinelError, match=r"\[constructed_scenario\]: draw\[variant\] is 1000000, expected a whole"):
        stored(_file(tmp_path, record))
    record = evidence()
    record["constructed_scenario"]["batch"]["length"]["values"] = [1, 9]
    with pytest.raises(
        SentinelError, match=r"\[findings.0.evidence.constructed_scenario\]: .*contains 9, expected 0 to 1"
    ):
        stored(_file(tmp_path, _report(record)))


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    for place, why in ((tmp_path, "Is a directory"), (tmp_path / "no", "No such file or directory")):
        with pytest.raises(SentinelError) as told:
            stored(place)
        assert str(told.value) == f"evidence {place} cannot be read ({why}): name a file that audit --json wrote"
