"""The report of a comparison: its headings, its lines of at most 80 columns, its JSON."""

import io

from rich.console import Console

from rl_sentinel.audit.verdict_changes import Pair, Result
from rl_sentinel.report.changes import Comparison, as_json, show

FOUND, HOLDS = Result("broken", "fault", "loss is NaN"), Result("holds", "", "")

COMPARISON = Comparison(
    "verl==1.0",
    "verl==2.0",
    old={
        Pair("A", "m.fixed", "default"): FOUND,
        Pair("A", "m.gone", "default"): FOUND,
        Pair("A", "m.same", "x"): FOUND,
        Pair("A", "m.new", "default"): HOLDS,
    },
    new={
        Pair("A", "m.fixed", "default"): HOLDS,
        Pair("*", "m.gone", "*"): Result("errored", "", "m.gone is absent"),
        Pair("A", "m.same", "x"): FOUND,
        Pair("A", "m.new", "default"): FOUND,
    },
    level="contested",
)


def test_report_tells_fixed_from_unjudged() -> None:
    out = io.StringIO()
    show(Console(file=out, soft_wrap=True), COMPARISON, 2.0)
    assert out.getvalue().splitlines() == [
        "rl-sentinel audit verl==2.0 --against verl==1.0",
        "4 findings in 2 s: 1 new, 1 gone, 1 not judged, 1 unchanged",
        "",
        "new",
        "  fault      A       m.new",
        "      loss is NaN",
        "      in verl==1.0: holds",
        "",
        "gone",
        "  fault      A       m.fixed",
        "      loss is NaN",
        "      in verl==2.0: holds",
        "",
        "not judged: not checked in verl==2.0, so not shown to be fixed",
        "  fault      A       m.gone",
        "      loss is NaN",
        "      now: not bound: m.gone is absent",
        "",
        "unchanged",
        "  fault      A       m.same [x]",
        "",
        "1 boundary bound in verl==1.0 only:",
        "  m.gone",
    ]


def test_json_has_the_same() -> None:
    made = as_json(COMPARISON)
    assert (made["target"], made["against"]) == ("verl==2.0", "verl==1.0")
    assert [c["boundary"] for c in made["came"]] == ["m.new"]
    assert [(c["boundary"], c["judged"]) for c in made["went"]] == [("m.fixed", True), ("m.gone", False)]
    assert (made["bound_only_in_target"], made["bound_only_in_against"]) == ([], ["m.gone"])
