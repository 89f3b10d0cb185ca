"""Advantages per token of rows that stand one after the other, with the cumulative lengths of the rows."""

from typing import Any

import pytest

import rl_sentinel
from checks import packed_advantages as own

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow


def test_packed_advantages_are_judged_by_their_formula() -> None:
    result = rl_sentinel.check(own.by_prompt, stage="advantage", algorithm="grpo", budget=4)
    assert (result.ok, result.findings) == (True, ()), result
    assert [v.outcome for v in result.verdicts if v.law == "REF001"] == ["holds"]


def test_a_statistic_of_the_batch_is_found() -> None:
    result = rl_sentinel.check(own.by_batch, stage="advantage", algorithm="grpo", budget=4)
    assert {"GRP001", "REF001"} <= {finding.code for finding in result.faults}


_GAE: dict[str, Any] = {"stage": "advantage", "algorithm": "gae", "budget": 5}
_TO_GO: dict[str, Any] = {"stage": "advantage", "claims": {"credit": "temporal"}, "budget": 5}


@pytest.mark.parametrize("function", [own.gae, own.gae_documented, own.gae_of_rewards, own.gae_of_lengths])
def test_rewards_and_values_of_all_tokens_are_inferred(function: Any) -> None:
    result = rl_sentinel.check(function, **_GAE)
    assert (result.ok, result.findings) == (True, ()), result
    assert [v.outcome for v in result.verdicts if v.law == "REF001"] == ["holds"]


def test_rewards_of_all_tokens_are_inferred_without_values() -> None:
    result = rl_sentinel.check(own.to_go, **_TO_GO)
    assert (result.ok, result.findings) == (True, ()), result


@pytest.mark.parametrize(("function", "options"), [(own.gae_over_ends, _GAE), (own.to_go_over_ends, _TO_GO)])
def test_a_sum_over_the_end_of_a_row_is_found(function: Any, options: dict[str, Any]) -> None:
    assert rl_sentinel.check(function, **options).faults


def test_axes_in_a_docstring_need_no_note() -> None:
    paths = [note.partition(" ")[0] for note in rl_sentinel.check(own.gae, **_GAE).notes]
    assert paths == ["token_rewards", "values"]
    assert not rl_sentinel.check(own.gae_documented, **_GAE).notes
