"""Findings of one cause are one block of a report."""

from functools import partial
from typing import Any

import pytest

from rl_sentinel.audit.causes import group_by_cause
from rl_sentinel.audit.findings import Finding


def _found(boundary: str, also: int = 0, **changed: Any) -> Finding:
    """A finding of a law on advantages at one boundary."""
    parts: dict[str, Any] = {"law": "MSK001", "kind": "Equal", "output": "advantage", "level": "contested"}
    parts |= {"column": "reward", "line": 10, "algorithm": boundary, "stage": "advantage", "sentence": "", **changed}
    change = {"column": parts["column"], "subject": "its reward"} if parts["column"] is not None else None
    evidence = {
        "law": parts["law"],
        "boundary": boundary,
        "setting": "default",
        "stage": parts["stage"],
        "source": {"file": f"{boundary}.py", "line": parts["line"]},
        "claims": {"algorithm": {"value": parts["algorithm"], "cite": ""}},
        "expectation": {**{k: parts[k] for k in ("kind", "output", "sentence")}, "change": change},
    }
    listed = tuple(f"place {n} [default]" for n in range(also))
    return Finding(signature=boundary, level=parts["level"], evidence=evidence, also=listed)


def _blocks(*found: Finding) -> list[list[str]]:
    return [[f.signature for f in block] for block in group_by_cause(found)]


def test_same_mechanism_is_one_block() -> None:
    assert _blocks(_found("grpo"), _found("rloo", also=2), _found("gpg")) == [["rloo", "grpo", "gpg"]]


@pytest.mark.parametrize(
    "other", [{"law": "MSK002"}, {"level": "fault"}, {"kind": "Moves"}, {"column": "value"}, {"output": "loss"}]
)
def test_another_mechanism_is_another_block(other: dict[str, Any]) -> None:
    assert _blocks(_found("a"), _found("b", **other)) == [["a"], ["b"]]


def test_without_a_change_the_algorithm_decides() -> None:
    found = [_found(name, column=None, algorithm=name[:4]) for name in ("grpo", "grpo_vectorized", "rloo")]
    assert _blocks(*found) == [["grpo", "grpo_vectorized"], ["rloo"]]


def test_same_code_is_one_block() -> None:
    one, other = _found("m", column="reward"), _found("m", column="value")
    assert len(group_by_cause([one, other])) == 1


def test_a_setting_that_is_lost_the_same_way_at_two_places_is_one_block() -> None:
    """Only where no batch is involved: the same numbers on a batch may have two causes."""
    lost = partial(_found, column=None, output="top_p", sentence="top_p is 1, expected 0.9")
    assert _blocks(lost("a", stage="config"), lost("b", stage="config")) == [["a", "b"]]
    assert _blocks(lost("a"), lost("b")) == [["a"], ["b"]]
    other = lost("b", stage="config", sentence="top_p is 0.5, expected 0.9")
    assert _blocks(lost("a", stage="config"), other) == [["a"], ["b"]]


def test_another_output_of_the_same_code_is_another_block() -> None:
    """A wrong loss is not shown under a wrong metric."""
    metric, loss = (_found("m", column=None, algorithm=name, output=name) for name in ("metric", "loss"))
    assert len(group_by_cause([metric, loss])) == 2
