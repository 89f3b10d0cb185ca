"""The table of ``history``: blocks of at most 80 columns, and JSON."""

from rl_sentinel.audit.release_history import Place, Release
from rl_sentinel.audit.verdict_changes import Pair, Result
from rl_sentinel.report.history import as_json, as_text

PLACE = Place("FIN001", "m.compute_a_rather_long_function_name")


def _release(name: str, outcome: str) -> Release:
    level = "fault" if outcome == "broken" else ""
    results = {Pair(*PLACE, "default"): Result(outcome, level, "loss is NaN" if level else "")}
    return Release(name, f"verl=={name}", results=results, causes=(PLACE,) if level else ())


RELEASES = [
    *(_release(f"0.{n}.0", "broken" if n < 2 else "holds") for n in range(5)),
    Release("0.5.0", "verl==0.5.0", error="no wheel"),
]


def test_blocks_fit_80_columns() -> None:
    lines = as_text("verl", RELEASES, "contested")
    assert lines == [
        "verl: 1 finding in 6 releases",
        "",
        "law     function                    0.0.0      0.1.0      0.2.0      0.3.0",
        "FIN001  compute_a_rather_long_fu... found      found      holds      holds",
        "",
        "law     function                    0.4.0      0.5.0",
        "FIN001  compute_a_rather_long_fu... holds      errored",
        "",
        "verl==0.5.0 could not be audited: no wheel",
    ]
    assert max(map(len, lines)) <= 80


def test_nothing_found_has_no_table() -> None:
    assert as_text("verl", [_release("1.0", "holds")], "contested") == ["verl: 0 findings in 1 release"]


def test_json_has_the_reasons() -> None:
    made = as_json("verl", RELEASES, "contested")
    assert [r["error"] for r in made["releases"]] == [""] * 5 + ["no wheel"]
    assert made["findings"][0]["boundary"] == PLACE.boundary
    assert made["findings"][0]["releases"]["0.1.0"] == {"cell": "found", "reason": "loss is NaN"}
    assert made["findings"][0]["releases"]["0.5.0"] == {"cell": "errored", "reason": "no wheel"}
