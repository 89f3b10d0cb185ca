"""A formula that was compared with nothing makes the check inconclusive; exceptions for a whole law are noted."""

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import rl_sentinel
from command_line import run_cli


def for_single_responses(rewards: Tensor, group: Tensor) -> Tensor:
    if len(set(group.tolist())) < len(group):
        raise ValueError("expected one response per prompt")
    return rewards - rewards.mean()


def test_an_algorithm_without_a_compared_case_is_not_ok() -> None:
    stated: tuple[dict[str, Any], ...] = ({"algorithm": "grpo"}, {"claims": {"algorithm": "grpo"}})
    for options in stated:
        result = rl_sentinel.check(for_single_responses, stage="advantage", laws=["REF001", "PUR001"], **options)
        assert not result.ok
        (reason,) = result.errored
        assert reason.startswith("not compared with the formula of grpo: ")
        assert reason in " ".join(str(result).split())


def test_it_is_ok_where_the_comparison_was_not_asked_for() -> None:
    result = rl_sentinel.check(for_single_responses, stage="advantage", algorithm="grpo", laws=["PUR001"])
    assert result.ok


CODE = """
def for_single_responses(rewards, group):
    if len(group.unique()) < len(group):
        raise ValueError("expected one response per prompt")
    return rewards - rewards.mean()
"""


@pytest.mark.slow
def test_the_command_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(CODE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    options = ("--stage", "advantage", "--claim", "algorithm=grpo", "--law", "REF001", "--law", "PUR001")
    code, out, _ = run_cli(capsys, "audit", "mine:for_single_responses", *options)
    assert code == 2
    assert "not compared with the formula of" in " ".join(out.split())
    assert "no algorithm is stated" not in " ".join(out.split())


def without_epsilon(rewards: list[float], group: list[int]) -> list[float]:
    advantages = [0.0] * len(rewards)
    for prompt in set(group):
        rows = [row for row, label in enumerate(group) if label == prompt]
        mean = sum(rewards[row] for row in rows) / len(rows)
        deviation = (sum((rewards[row] - mean) ** 2 for row in rows) / len(rows)) ** 0.5
        for row in rows:
            advantages[row] = (rewards[row] - mean) / deviation
    return advantages


def test_a_division_by_zero_for_equal_rewards_is_noted() -> None:
    result = rl_sentinel.check(without_epsilon, stage="advantage", algorithm="grpo", laws=["DEG002", "REF001"])
    assert result.notes == [
        "the function raised ZeroDivisionError: float division by zero on every batch of DEG002, which was not checked"
    ]


def test_no_note_where_nothing_raises() -> None:
    def with_epsilon(rewards: list[float], group: list[int]) -> list[float]:
        means = {label: [r for r, other in zip(rewards, group, strict=True) if other == label] for label in set(group)}
        return [r - sum(means[label]) / len(means[label]) for r, label in zip(rewards, group, strict=True)]

    result = rl_sentinel.check(with_epsilon, stage="advantage", algorithm="dr_grpo", laws=["DEG002", "REF001"])
    assert (result.ok, result.notes) == (True, [])
