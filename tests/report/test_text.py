"""The text report: coverage, what could not be judged, then the findings."""

from dataclasses import replace

from rich.console import Console

from report_fixtures import SENTENCE, evidence, finding
from rl_sentinel.audit.findings import Audit, Finding
from rl_sentinel.core.verdict import Verdict
from rl_sentinel.report.text import scenario, show


def _shown(audit: Audit, found: list[Finding]) -> list[str]:
    console = Console(width=200, record=True, file=None, quiet=False, color_system=None, soft_wrap=True)
    with console.capture() as capture:
        show(console, "verl==1.0", audit, found, 2.0)
    return capture.get().splitlines()


def test_coverage_stands_above_the_findings() -> None:
    """All four counts, and the reason of what is errored."""
    audit = Audit(boundaries=1)
    audit.verdicts.append(Verdict(law="A", boundary="m.f", setting="s", outcome="errored", reason="it\n  [died]"))
    assert _shown(audit, []) == [
        "rl-sentinel audit verl==1.0",
        "1 pair of law and boundary at 1 boundary in 2 s: 0 hold, 0 broken, 0 not applicable, 1 errored",
        "  errored, 1 pair at m.f: it [died]",
        "",
        "0 findings: none",
    ]


def test_where_little_was_tried_the_reasons_are_told() -> None:
    """And how many findings lie below the level."""
    audit = Audit(boundaries=1)
    for law in ("A", "B"):
        audit.verdicts.append(
            Verdict(law=law, boundary="m.f", setting="s", outcome="not-applicable", reason="no claim")
        )
    console = Console(width=200, color_system=None, soft_wrap=True)
    with console.capture() as capture:
        show(console, "mine:f", audit, [], 2.0, hidden=3)
    assert capture.get().splitlines()[2:] == [
        "  not applicable, 2 pairs: no claim",
        "",
        "0 findings: none",
        "3 more below the level that is shown: --level hazard",
    ]


def test_whose_entry_makes_a_finding_known() -> None:
    """The file is named, also where its entry gives no reason."""
    mine = replace(finding(), accepted=True, known_from="mine.toml")
    shipped = replace(finding(), known="seen (link)", known_from="ships with RL-Sentinel")
    assert "  known (mine.toml): no reason is given" in _shown(Audit(), [mine])
    assert "  known (ships with RL-Sentinel): seen (link)" in _shown(Audit(), [shipped])
    assert not [line for line in _shown(Audit(), [finding()]) if "known" in line]


def test_finding_tells_its_story() -> None:
    """What was done, what was expected, on which batch, and where else it shows."""
    lines = _shown(Audit(), [replace(finding(), also=tuple(f"m.f [{n}]" for n in range(8)), known="seen (link)")])
    begin = lines.index("fault MSK001 dead-row-shifts-signal at m.estimator")
    assert lines[begin + 1 : begin + 6] == [
        "  m.py:10",
        f"  {SENTENCE}",
        "    expected [[0.5], [0]]",
        "    observed [[0.25], [0]]",
        "  on this batch (2 rows x 1 token):",
    ]
    assert "    reward          [1, 0]" in lines
    assert "    excluded        [0, 1]  (why a row is not trained: 0 in, 1 padding)" in lines
    assert "  known: seen (link)" in lines
    assert lines[-1] == "  also through 2 more"


def test_other_side_is_printed_of_what_is_contested() -> None:
    """And not of a fault."""
    words = {"could_be_intended": "It may be meant.", "level": "contested"}
    assert "  the other side: It may be meant." in _shown(Audit(), [finding(**words)])
    assert not any("other side" in line for line in _shown(Audit(), [finding(**words | {"level": "fault"})]))


def test_length_is_shown_where_the_mask_does_not_tell_it() -> None:
    """A masked token at the end of a response looks like padding; a column that is not read is left out."""
    given = evidence()
    columns = given["constructed_scenario"]["batch"]
    columns["mask"]["values"], columns["length"]["values"] = [[True, False], [True, True]], [2, 2]
    columns["value"] = {"dtype": "float32", "values": [[0.0, 1.0], [0.0, 1.0]]}
    assert {"length", "value"} <= {name for name, _ in scenario(given)}
    assert "value" not in {name for name, _ in scenario(given | {"reads": ["reward", "mask"]})}
    columns["mask"]["values"] = [[True, True], [True, True]]
    assert "length" not in {name for name, _ in scenario(given)}
