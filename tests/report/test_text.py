"""The whole text report: coverage, blocks, the closing table, and known findings by place and reason."""

from dataclasses import replace

from rich.console import Console

from report_fixtures import SENTENCE, finding
from rl_sentinel.audit.findings import Audit, Finding
from rl_sentinel.core.verdict import Verdict
from rl_sentinel.report.text import show


def _report(
    audit: Audit, found: list[Finding], *, hidden: int = 0, verbose: bool = False, quiet: bool = False
) -> list[str]:
    console = Console(width=80, color_system=None, soft_wrap=True)
    with console.capture() as capture:
        show(console, "verl==1.0", audit, found, 2.0, hidden, verbose=verbose, quiet=quiet)
    return capture.get().splitlines()


def test_coverage_comes_first() -> None:
    audit = Audit(boundaries=1)
    audit.verdicts.append(Verdict(law="A", boundary="m.f", setting="s", outcome="errored", reason="it\n  [died]"))
    assert _report(audit, []) == [
        "rl-sentinel audit verl==1.0",
        "1 law in 2 s: 0 hold, 0 broken, 0 not applicable, 1 errored",
        "  errored, 1 pair at m.f: it [died]",
        "",
        "inconclusive: no law could run",
    ]


def test_quiet_report_says_what_could_not_be_judged() -> None:
    audit = Audit(boundaries=1)
    audit.verdicts += [
        Verdict(law="A", boundary="m.f", setting="s", outcome="errored", reason="it died"),
        Verdict(law="B", boundary="m.f", setting="s", outcome="not-applicable", reason="no claim"),
    ]
    assert _report(audit, [], quiet=True) == [
        "  errored, 1 pair at m.f: it died",
        "  not applicable, 1 pair: no claim",
        "",
        "inconclusive: no law could run",
    ]
    audit.verdicts.append(Verdict(law="C", boundary="m.f", setting="s", outcome="holds", tried=1))
    assert _report(audit, [], quiet=True) == ["  errored, 1 pair at m.f: it died", "", "0 findings: none"]


def test_pairs_are_counted_where_a_boundary_has_several_settings() -> None:
    audit = Audit(boundaries=1)
    audit.verdicts += [Verdict(law="A", boundary="m.f", setting=s, outcome="holds", tried=1) for s in "st"]
    assert " ".join(_report(audit, [])[1:3]).startswith("2 pairs of law and boundary at 1 boundary in 2 s: 2 hold")


def test_stored_verdicts_are_said_to_be_stored() -> None:
    line = "verdicts from the store: 2 of 2 boundaries (--fresh runs all)"
    assert line in _report(Audit(boundaries=2, stored=True), [])
    assert line not in _report(Audit(boundaries=2), [])


def test_reasons_are_printed_where_no_law_could_run() -> None:
    audit = Audit(boundaries=1)
    for law in ("A", "B"):
        audit.verdicts.append(
            Verdict(law=law, boundary="m.f", setting="s", outcome="not-applicable", reason="no claim")
        )
    assert _report(audit, [], hidden=3)[2:] == [
        "  not applicable, 2 pairs: no claim",
        "",
        "inconclusive: no law could run",
        "3 broken at a lower level, not shown: --level hazard shows all",
    ]


def test_reasons_of_a_single_function_are_shown_on_demand() -> None:
    audit = Audit(boundaries=1)
    audit.verdicts += [
        Verdict(law="A", boundary="m.f", setting="s", outcome="holds", tried=1),
        Verdict(law="B", boundary="m.f", setting="s", outcome="not-applicable", reason="the boundary reads no mask"),
    ]
    assert "  --verbose lists why laws do not apply" in _report(audit, [])
    assert "  not applicable, 1 pair: the boundary reads no mask" in _report(audit, [], verbose=True)


def test_known_findings_are_shown_by_place_and_reason() -> None:
    shipped = replace(finding(), known="rejected rows stay in the mean of the group", known_from="ships")
    mine = replace(finding(setting="other"), accepted=True, known_from="mine.toml")
    lines = _report(Audit(), [finding(boundary="m.g"), shipped, mine])
    assert lines[2:6] == ["  applicable, 0 errored", "", "3 findings: 3 fault", ""]
    assert " ".join(" ".join(lines[6:8]).split()) == f"fault MSK001 {SENTENCE}"
    assert lines[-6:] == [
        "",
        "2 known findings (--verbose shows each with its case)",
        "fault      MSK001  estimator",
        f"{'':19}rejected rows stay in the mean of the group",
        "accepted   MSK001  estimator [other]",
        f"{'':19}mine.toml",
    ]


def test_known_findings_of_one_reason_are_listed_together() -> None:
    found = [replace(finding(boundary=f"m.{name}"), known="a reason", known_from="ships") for name in "fg"]
    assert _report(Audit(), found)[-3:] == ["fault      MSK001  f", "fault      MSK001  g", f"{'':19}a reason"]


def test_known_findings_of_one_reason_are_listed_together_where_another_is_between() -> None:
    first, other, last = (finding(boundary=f"m.{name}") for name in ("Server.run", "g", "Client.run"))
    found = [replace(one, known=reason) for one, reason in ((first, "a"), (other, "b"), (last, "a"))]
    assert _report(Audit(), found)[-5:] == [
        "fault      MSK001  Server.run",
        "fault      MSK001  Client.run",
        f"{'':19}a",
        "fault      MSK001  g",
        f"{'':19}b",
    ]


def test_verbose_shows_known_findings_in_full() -> None:
    mine = replace(finding(), accepted=True, known_from="mine.toml")
    lines = _report(Audit(), [mine], verbose=True)
    assert any(line.startswith(f"accepted MSK001 {SENTENCE[:30]}") for line in lines)
    assert "  known     mine.toml: without a reason" in lines


def test_table_lists_all_findings_of_all_blocks() -> None:
    long = "m." + "x" * 90
    found = [finding(), finding(boundary="m.g", setting="a"), finding(law="SHF001", boundary=f"m.one -> {long}")]
    lines = _report(Audit(), found)
    assert [line[:16] for line in lines if line.startswith("fault ")][:2] == ["fault MSK001 row", "fault SHF001 row"]
    assert lines[-4:] == [
        "level      law     place",
        "fault      MSK001  estimator",
        "fault      MSK001  g [a]",
        f"fault      SHF001  one -> {'x' * 51}...",
    ]


def test_the_end_of_a_reason_is_printed() -> None:
    """What to state is said there."""
    reason = f"not compared: {'words ' * 40}state no algorithm"
    audit = Audit(boundaries=1)
    audit.verdicts.append(Verdict(law="A", boundary="m.f", setting="s", outcome="errored", reason=reason))
    assert reason in " ".join(" ".join(_report(audit, [])).split())
