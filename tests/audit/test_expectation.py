"""An audit against its expectation: findings, levels, folded places, counts, refusals."""

from typing import Any

from rl_sentinel.audit.expectation import differences, refusals
from rl_sentinel.audit.findings import Audit, Finding
from rl_sentinel.audit.known import KnownFile
from rl_sentinel.core.verdict import Verdict


def _finding(signature: str, *also: str, level: str = "fault") -> Finding:
    return Finding(signature=signature, level=level, evidence={}, also=also)


def _expected(**more: Any) -> KnownFile:
    return KnownFile.model_validate(more)


def test_all_as_expected() -> None:
    entries = [{"signature": "a", "level": "fault", "also": ["x", "y"]}, {"signature": "b", "level": "fault"}]
    shown = [_finding("a", "y", "x"), _finding("b", "z")]
    assert differences(_expected(finding=entries), Audit(), shown) == []


def test_each_difference_is_a_line() -> None:
    entries = [{"signature": "a", "level": "fault", "also": ["x"]}, {"signature": "b", "level": "fault", "also": []}]
    shown = [_finding("a", "y"), _finding("b", level="hazard")]
    assert differences(_expected(finding=entries, errored=1), Audit(), shown) == [
        "missing: b (fault)",
        "not expected: b (hazard)",
        "missing: a through x",
        "not expected: a through y",
        "errored: 0, expected 1",
    ]


def test_pairs_that_the_target_refuses_are_compared() -> None:
    reasons = ["ValueError: two rows", "the boundary reads no group", "AssertionError: horizon"]
    audit = Audit(
        verdicts=[
            Verdict(law="X", boundary="b", setting=str(n), outcome="not-applicable", reason=reason)
            for n, reason in enumerate(reasons)
        ]
    )
    assert refusals(audit.verdicts) == ["X b [0]: ValueError", "X b [2]: AssertionError"]
    assert differences(_expected(refused=refusals(audit.verdicts)), audit, []) == []
    assert differences(_expected(refused=["X b [0]: ValueError", "X b [1]: KeyError"]), audit, []) == [
        "no longer refused: X b [1]: KeyError",
        "not expected to be refused: X b [2]: AssertionError",
    ]
    assert differences(_expected(), audit, []) == []
