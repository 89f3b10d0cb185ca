"""Advantages per token of rows that stand one after the other, with the cumulative lengths of the rows."""

import rl_sentinel
from checks import packed_advantages as own


def test_packed_advantages_are_judged_by_their_formula() -> None:
    result = rl_sentinel.check(own.by_prompt, stage="advantage", algorithm="grpo", budget=4)
    assert (result.ok, result.findings) == (True, ()), result
    assert [v.outcome for v in result.verdicts if v.law == "REF001"] == ["holds"]


def test_a_statistic_of_the_batch_is_found() -> None:
    result = rl_sentinel.check(own.by_batch, stage="advantage", algorithm="grpo", budget=4)
    assert {"GRP001", "REF001"} <= {finding.code for finding in result.faults}
