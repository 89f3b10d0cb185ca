"""A named algorithm whose formula was compared with nothing makes the check inconclusive."""

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
