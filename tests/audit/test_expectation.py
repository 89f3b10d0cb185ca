"""An audit against its expectation: findings, levels, folded places, counts."""

from typing import Any

from rl_sentinel.audit.expectation import differences
from rl_sentinel.audit.findings import Audit, Finding
from rl_sentinel.audit.known import KnownFile


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
