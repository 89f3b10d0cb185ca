"""The table of releases by findings: its rows are causes, its cells say what became of a place."""

import pytest

from rl_sentinel.audit.release_history import Place, Release, cell, table
from rl_sentinel.audit.verdict_changes import Pair, Result

PLACE = Place("FIN001", "m.f")
FOUND, HOLDS = Result("broken", "fault", "loss is NaN"), Result("holds", "", "")
ERRORED = Result("errored", "", "it died")
LACKING = Result("not-applicable", "", "m.f is absent: m has no 'f'")


def _release(**results: Result) -> Release:
    """A release with a result per setting."""
    return Release("1.0", "verl==1.0", results={Pair(*PLACE, setting): r for setting, r in results.items()})


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        (_release(a=HOLDS, b=FOUND), ("found", "loss is NaN")),
        (_release(a=HOLDS, b=ERRORED), ("holds", "")),
        (_release(a=Result("broken", "hazard", "x")), ("holds", "")),
        (_release(a=ERRORED), ("errored", "it died")),
        (_release(a=Result("not-applicable", "", "no claim")), ("not applicable", "no claim")),
        (_release(), ("absent", "")),
        (Release("1.0", "verl==1.0", "no wheel"), ("errored", "no wheel")),
        (Release("1.0", "t", results={Pair("MSK001", "m.f", "a"): HOLDS}), ("not run", "")),
        (
            Release("1.0", "t", results={Pair("*", "m.f", "*"): LACKING}),
            ("absent", "m.f is absent: m has no 'f'"),
        ),
        (
            Release("1.0", "t", results={Pair("*", "m.f", "*"): LACKING, Pair("MSK001", "m.f", "a"): HOLDS}),
            ("not run", "m.f is absent: m has no 'f'"),
        ),
        (
            Release("1.0", "t", results={Pair("*", "m.f", "*"): LACKING, Pair(*PLACE, "a"): HOLDS}),
            ("holds", ""),
        ),
        (Release("1.0", "t", results={Pair("*", "m.f", "*"): ERRORED}), ("errored", "it died")),
    ],
)
def test_cell(release: Release, expected: tuple[str, str]) -> None:
    assert cell(release, PLACE, "contested") == expected


def test_rows_are_the_causes_of_any_release() -> None:
    new = Release("2.0", "verl==2.0", results={Pair(*PLACE, "a"): FOUND}, causes=(PLACE,))
    assert table([_release(a=HOLDS), new], "contested") == {PLACE: [("holds", ""), ("found", "loss is NaN")]}
