"""An issue says what a maintainer needs, on one page."""

from dataclasses import replace

from report_fixtures import SENTENCE, finding
from rl_sentinel.audit.known import Known
from rl_sentinel.report.issue import PAGE, as_issue


def test_an_issue() -> None:
    """Title, place, effect, input, result, fix and the code that shows it."""
    entry = Known(finding().signature, "rejected rows count", "", "", "", accepted=False, fix="Count `mask`.")
    text, attached = as_issue(replace(finding(), entry=entry), "test_m.py", "assert False\n")
    title, _, *points = text.splitlines()
    assert title == f"# `estimator`: {SENTENCE}"
    assert points[:2] == ["- where: verl 1.0, `estimator` (`m.py:10`)", "- level: fault"]
    assert "- cause: rejected rows count" in points
    assert "- already reported? no report is known; search the tracker before filing" in points
    assert "expected advantage [[0.5], [0]]\nobserved advantage [[0.25], [0]]" in text
    assert "reward = [1, 0 -> 1]" in text
    assert text.endswith("Suggested fix:\n\nCount `mask`.\n\nCode:\n\n```python\nassert False\n```\n")
    assert not attached


def test_long_code_is_attached() -> None:
    text, attached = as_issue(finding(), "test_m.py", "assert True\n" * PAGE)
    assert attached
    assert "Code: `test_m.py`, attached. It fails now and passes once fixed." in text
    assert "assert True" not in text
    assert len(text.splitlines()) <= PAGE


def test_the_other_side_is_said() -> None:
    """Nothing is said where no reading makes it right."""
    assert "intended" not in as_issue(finding(), "m.py", "")[0]
    contested = finding(could_be_intended="It may be meant.")
    assert "- could it be intended? It may be meant." in as_issue(contested, "m.py", "")[0]


def test_where() -> None:
    """Each function that the test calls has its line."""
    places = {"m.read": "m.py:3", "n.log": "n.py:9"}
    text, _ = as_issue(finding(places=places), "m.py", "")
    assert "- where: verl 1.0, `read` (`m.py:3`) -> `log` (`n.py:9`)\n" in text


def test_general_advice_is_a_suggested_fix() -> None:
    """Without a known fix; advice that names a function of this package is none for a maintainer."""
    assert "Suggested fix" not in as_issue(finding(), "m.py", "")[0]
    text, _ = as_issue(finding(law="MSK005"), "m.py", "")
    assert "Suggested fix:\n\nLeave rows without a trained token out of the sum and of the count.\n" in text
    text, _ = as_issue(finding(law="CFG001"), "m.py", "")
    assert "Suggested fix:\n\nUse it, or refuse it when the configuration is read.\n" in text


def test_a_refused_value_of_a_list() -> None:
    """The configuration has the refused value."""
    expectation = finding().evidence["expectation"] | {"listed": {"name": "kind", "value": "full"}}
    reach = "algorithm.kl_penalty=kl, or actor.kl_loss_type=kl"
    found = finding(law="CFG005", expectation=expectation, reach=reach, knobs={"kind": "kl"})
    text, _ = as_issue(found, "m.py", "")
    assert "- when: algorithm.kl_penalty=full, or actor.kl_loss_type=full" in text


def test_an_effect_that_is_missing() -> None:
    """Where a change must matter, the same numbers stand before and after it."""
    same = [{"output": "advantage", "expected": [[0.0]], "observed": [[0.0]]}]
    text, _ = as_issue(
        finding(expectation=finding().evidence["expectation"] | {"kind": "Moves", "results": same}), "", ""
    )
    assert "before   advantage [[0]]\nafter    advantage [[0]]" in text
