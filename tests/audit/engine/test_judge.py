"""Judging: the smoke check, the cases that a law is tried on, and their order."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor

from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.audit.engine.judge import names_of_expectations, search, smoke_check
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Case
from rl_sentinel.core.codec import Inputs
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.case_selection import ENOUGH, all_cases, selection
from specimens import specimen


def test_smoke_check_sees_what_cannot_move() -> None:
    still = specimen(lambda batch: torch.zeros_like(batch.reward).unsqueeze(1) * batch.mask, reads="reward mask")
    moving = specimen(lambda batch: batch.reward.unsqueeze(1) * batch.mask, reads="reward mask")
    assert (
        smoke_check(Asker(still, {}), "default")
        == "output advantage does not change with any column that the boundary reads"
    )
    assert smoke_check(Asker(moving, {}), "default") == ""


def test_smoke_check_moves_single_entries() -> None:
    """What does not change where whole rows, tokens or vocabularies move equally."""
    along_tokens = specimen(lambda batch: batch.value.softmax(1), reads="value")
    along_both = specimen(lambda batch: batch.value - batch.value.mean(1, keepdim=True), reads="value")
    logits = specimen(lambda batch: batch.logits.log_softmax(1)[..., 0], reads="logits")
    rows = specimen(lambda batch: batch.logits.log_softmax(0)[..., 0], reads="logits")
    for boundary in (along_tokens, along_both, logits, rows):
        assert smoke_check(Asker(boundary, {}), "default") == ""


def test_smoke_check_moves_each_column_alone_too() -> None:
    """Columns that are moved together cancel in their difference."""
    difference = specimen(lambda batch: batch.value - batch.old_value, reads="value old_value")
    assert smoke_check(Asker(difference, {}), "default") == ""


def test_smoke_check_reaches_thresholds_on_the_first_cases() -> None:
    """A decision that small changes leave as it is takes few calls."""
    calls: list[int] = []

    def kept(batch: Batch) -> Tensor:
        calls.append(1)
        return ((batch.old_logprob - batch.rollout_logprob).abs() < 2).float()

    assert smoke_check(Asker(specimen(kept, reads="old_logprob rollout_logprob"), {}), "default") == ""
    assert len(calls) < 20


def test_smoke_check_moves_another_column_where_one_must_stay() -> None:
    """Advantages that the target could not compute are no reason to leave the boundary unchecked."""
    seen = dict[int, Tensor]()

    def as_first(inputs: Inputs) -> str:
        advantage = inputs.batch.advantage
        first = seen.setdefault(inputs.batch.rows, advantage)
        return "" if first.shape == advantage.shape and torch.equal(first, advantage) else "another advantage"

    boundary = specimen(
        lambda batch: batch.reward.unsqueeze(1) * batch.mask, reads="advantage reward mask", requires=(as_first,)
    )
    assert smoke_check(Asker(boundary, {}), "default") == ""


def test_a_drawn_batch_is_asked_once_for_all_laws_unless_fresh() -> None:
    calls = []

    def compute(batch: Batch) -> Tensor:
        calls.append(batch.rows)
        return batch.reward.unsqueeze(1) * batch.mask

    ask = Asker(specimen(compute, reads="reward mask"), {})
    drawn = Law(
        code="TOY001",
        name="toy",
        stages=frozenset({"advantage"}),
        applies=lambda _b: "",
        vary=lambda c, _n: c,
        expect=_same,
    )
    first = search(drawn, ask, "default", seed=0, budget=4)
    once = len(calls)
    search(drawn, ask, "default", seed=0, budget=4)
    assert (first.tried, len(calls)) == (once, once)
    search(replace(drawn, expect=_twice), ask, "default", seed=0, budget=4)
    assert len(calls) == 3 * once


@pytest.mark.parametrize("fails", ["on-one-case", "on-all-cases"])
def test_other_outputs_are_compared_on_later_cases(fails: Literal["on-one-case", "on-all-cases"]) -> None:
    """``late`` breaks only on batches with more rows than the first that breaks ``early``."""

    def expect(_ask: Ask, case: Case) -> Iterator[Expectation]:
        for name, rows in (("early", 1), ("late", 3), ("never", 99)):
            yield Equal(name, torch.zeros(1), torch.full((1,), float(case.batch.rows >= rows)))

    law = replace(_counted(fits=1), expect=expect, fails=fails)
    ask = Asker(specimen(lambda b: b.reward.unsqueeze(1) * b.mask, reads="reward mask"), {})
    judgment = search(law, ask, "default", seed=0, budget=4)
    assert judgment.found is not None
    assert judgment.found.expectation.name == "early"
    names = names_of_expectations(law, ask, judgment.found, judgment.later)
    assert names == ((("early", "late"), ("never",)) if fails == "on-one-case" else (("early",), ()))


def _same(ask: Ask, case: Case) -> Iterator[Expectation]:
    seen = ask(case).values["advantage"]
    yield Equal("advantage", seen, seen)


def _twice(ask: Ask, case: Case) -> Iterator[Expectation]:
    before, after = (ask(case, fresh=True).values["advantage"] for _ in range(2))
    yield Equal("advantage", before, after)


def test_other_cases_are_tried_only_until_enough_fit() -> None:
    law = _counted(fits=1)
    leading, few = (selection(law, 0, 0, long_run=long_run).leading for long_run in (False, True))
    assert _tried(law) == leading
    assert _tried(law, long_run=True) == few
    assert 0 < _tried(_counted(fits=9)) <= ENOUGH  # no leading case has nine rows
    assert _tried(replace(_counted(fits=1, gap=1.0), fails="on-all-cases")) == len(all_cases(0, 0))


def _counted(*, fits: int, gap: float = 0.0) -> Law:
    """A law whose precondition is a number of rows, with the distance that it finds on each such case."""

    def expect(_ask: Ask, case: Case) -> Iterator[Expectation]:
        if case.batch.rows >= fits:
            yield Equal("x", torch.zeros(1), torch.full((1,), gap))

    return Law(
        code="XXX001",
        name="toy",
        stages=frozenset({"advantage"}),
        applies=lambda _boundary: "",
        vary=lambda case, _variant: case,
        expect=expect,
    )


def _tried(law: Law, *, long_run: bool = False) -> int:
    boundary = specimen(lambda b: b.reward.unsqueeze(1) * b.mask, reads="reward mask")
    return search(law, Asker(boundary, {}), "default", seed=0, budget=0, long_run=long_run).tried
