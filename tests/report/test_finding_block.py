"""One cause as text: short enough to read in 20 seconds."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from report_fixtures import evidence, finding
from rl_sentinel.audit.causes import group_by_cause
from rl_sentinel.audit.findings import Finding
from rl_sentinel.report.finding_block import block

#: All findings of `audit verl==0.9.1`; `make expect` rewrites it.
RELEASE = Path(__file__).with_name("verl-0.9.1.json")

#: Most lines of a finding, and of half of them, without their lists of places; hazards are shown on demand.
MOST, HALF = 22, 14


def _release() -> list[Finding]:
    keys = ("signature", "level", "evidence", "known", "known_from", "elsewhere", "level_note", "accepted")
    stored = json.loads(RELEASE.read_text(encoding="utf-8"))
    return [Finding(**{k: f[k] for k in keys}, also=tuple(f["also"])) for f in stored]


def _without_places(lines: list[str]) -> list[str]:
    return lines[: next((n for n, line in enumerate(lines) if line.startswith("  also at")), len(lines))]


def test_findings_of_a_release_are_short() -> None:
    """And each line has at most 80 columns, unless it is one long path."""
    blocks = group_by_cause(_release())
    lengths = [len(_without_places(block(findings))) for findings in blocks]
    assert max(lengths) <= MOST, lengths
    assert median(lengths) <= HALF, lengths
    shown = [n for n, findings in zip(lengths, blocks, strict=True) if findings[0].level != "hazard"]
    assert median(shown) <= HALF, shown
    assert not [line for findings in blocks for line in block(findings) if len(line) > 80 and len(line.split()) > 2]


def test_estimators_that_count_rejected_rows_are_one_block() -> None:
    """Seven functions of verl 0.9.1 with one mechanism."""
    [only] = [findings for findings in group_by_cause(_release()) if findings[0].law == "MSK001"]
    assert len(only) == 7


def test_block_has_its_parts_in_order() -> None:
    algorithm = {"algorithm": {"value": "grpo", "cite": "x:1"}}
    shown = finding(knobs={"epsilon": 0.1}, setting="small", claims=algorithm, reads=["reward", "mask"])
    assert block([shown]) == [
        "fault MSK001 row 1 is not trained, yet its reward moves advantage at row 0,",
        "  token 0 from 0.5 to 0.25",
        "  where     estimator [small] (m.py:10), with epsilon=0.1",
        "  input     mask    [[1], [0]]  (row 1: padding)",
        "            reward  [1, 0 -> 1]",
        "  got       advantage [[0.25], [0]]",
        "  expected  advantage [[0.5], [0]], as before the change",
        "  when      algorithm.adv_estimator=x, with a padding row",
        "  fix       compute it with rl_sentinel.signal.advantage.grpo.advantages",
    ]


def test_contested_finding_prints_the_other_reading() -> None:
    words = {"could_be_intended": "It may be meant.", "level": "contested", "reach": ""}
    assert "  intended? It may be meant." in block([finding(**words)])
    assert "  when      any run that calls this function, with a padding row" in block([finding(**words)])
    assert not any("intended?" in line for line in block([finding(**words | {"level": "fault"})]))


def test_other_outputs_that_break_the_law_are_named() -> None:
    outputs = {"broken": ["advantage", "returns", "weight"], "held": ["kl"]}
    assert "  got       advantage [[0.25], [0]]; also wrong at returns, weight" in block([finding(outputs=outputs)])
    many = {"broken": ["advantage", *(f"return_of_step_{n}" for n in range(3))], "held": []}
    line = "  outputs   also wrong at return_of_step_0, return_of_step_1, return_of_step_2"
    assert line in block([finding(outputs=many)])
    alone = {"broken": ["advantage"], "held": ["kl"]}
    assert not any("also wrong" in line for line in block([finding(outputs=alone)]))


def test_annotations_of_known_files() -> None:
    known = replace(finding(), known="seen (link)", known_from="built-in list")
    assert "  known     seen (link)" in block([known])
    assert "  new here  known of releases <1: why" in block([replace(finding(), elsewhere="known of releases <1: why")])
    assert "  level     stays fault" in block([replace(finding(), level_note="stays fault")])


def test_places_of_one_boundary_share_a_line() -> None:
    first = replace(finding(), also=("m.f [a]", "m.f [b]", "MSK006 at m.estimator [default]"))
    other = finding(boundary="m.g")
    lines = block([first, other])
    assert lines[lines.index("  also at   3 places with the same cause (they break MSK006 too):") + 1 :] == [
        "    m.g",
        "    m.f [a; b]",
    ]
    alone = replace(finding(), also=("MSK006 at m.estimator [default]",))
    assert block([alone])[-1] == "  also      breaks MSK006 here"


def test_setting_with_the_word_at_is_no_law() -> None:
    first = replace(finding(), also=("m.f [results cut at the left]",))
    assert block([first])[-2:] == ["  also at   1 place with the same cause:", "    m.f [results cut at the left]"]
    boundary, setting = first.signatures[-1].split(":")[-2:]
    assert (boundary, setting) == ("m.f", "results cut at the left")


def test_long_list_of_places_is_cut() -> None:
    lines = block([replace(finding(), also=tuple(f"m.f{n:02} [default]" for n in range(15)))])
    assert lines[-2:] == ["    m.f11", "    and 3 more: --json PATH has all"]


def _expectation(**changed: Any) -> dict[str, Any]:
    return {"expectation": evidence()["expectation"] | changed}


def test_missing_effect_shows_the_result_once() -> None:
    result = {"output": "advantage", "expected": [[0.0], [1.0]], "observed": [[0.0], [1.0]]}
    still = _expectation(kind="Moves", results=[result])
    assert "  got       advantage [[0], [1]] before and after" in block([finding(**still)])
    wrong = _expectation(kind="Moves", results=[result | {"observed": [[-0.0], [0.0]]}])
    assert "  got       advantage [[0], [1]] -> [[0], [0]]" in block([finding(**wrong)])


def test_two_numbers_that_the_sentence_states_are_not_repeated() -> None:
    single = [{"output": "loss", "expected": 0.5, "observed": 0.25}]
    stated = _expectation(results=single, sentence="splitting 2 rows moves loss from 0.5 to 0.25")
    assert not any("  got" in line or "  expected" in line for line in block([finding(**stated)]))
    silent = block([finding(**_expectation(results=single, sentence="the loss depends on the split"))])
    assert "  got       loss 0.25" in silent
    assert "  expected  loss 0.5, as before the change" in silent


def test_setting_lists_the_values_that_the_configuration_does_not_state() -> None:
    knobs = {"adv_estimator": "X", "suffix": "", "least": 0.5}
    assert "  where     estimator (m.py:10), with least=0.5" in block([finding(knobs=knobs)])


def test_reason_of_a_known_finding_is_shown_whole() -> None:
    reason = " ".join(f"word{n}" for n in range(60))
    lines = block([replace(finding(), known=reason, known_from="built-in list")])
    start = next(n for n, line in enumerate(lines) if line.startswith("  known"))
    assert " ".join(" ".join(lines[start:]).split()) == f"known {reason}"


def test_configuration_finding_has_no_batch() -> None:
    attempts = [{"name": f"rate {n}", "reason": "negative", "refusal": None} for n in range(8)]
    broken = {"cells": [[n] for n in range(1, 8)], "count": 7}
    refuses = _expectation(kind="Refuses", accepts=False, attempts=attempts, broken=broken, change=None, results=[])
    lines = block([finding(law="CFG003", **refuses)])
    text = " ".join(" ".join(lines).split())
    assert text.startswith("fault CFG003 7 of 8 invalid settings accepted: rate 1 (negative); rate 2 (negative);")
    assert "rate 6 (negative); and 1 more where" in text
    assert not any("input" in line or "got" in line for line in lines)
    accepts = _expectation(kind="Refuses", accepts=True, attempts=attempts, broken=broken, change=None, results=[])
    assert block([finding(law="CFG003", **accepts)])[0].startswith("fault CFG003 7 of 8 valid settings refused: ")


def test_finding_of_a_function_that_reads_no_batch_shows_none() -> None:
    """The other outputs that are wrong are still named."""
    outputs = {"broken": ["temperature", "top_p"], "held": []}
    lines = block([finding(law="CFG004", reads=[], outputs=outputs)])
    assert "  outputs   also wrong at top_p" in lines
    assert not any(line.startswith(("  input", "  got")) for line in lines)
    assert any(line.startswith("  input") for line in block([finding(law="CFG004", outputs=outputs)]))


def test_large_values_are_cut() -> None:
    rows = [[0.125] * 4 for _ in range(30)]
    result = {"output": "advantage", "expected": rows, "observed": rows}
    lines = block([finding(**_expectation(results=[result]))])
    [start] = [n for n, line in enumerate(lines) if line.startswith("  got")]
    assert lines[start + 1].endswith(" ...")
    assert lines[start + 2].startswith("  expected")
