"""Which cases a law is tried on, and in which order."""

from dataclasses import replace

import torch

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.law import Law
from rl_sentinel.search.case_selection import (
    ENOUGH,
    FULLY_VARIED,
    LEADING_DRAWN,
    OF_FEW_CASES,
    OF_LONG_RUNS,
    VARIED_KINDS,
    Selection,
    all_cases,
    leading_cases,
    selection,
)
from rl_sentinel.search.companion_cases import inside_domain
from rl_sentinel.search.small_cases import small_cases, small_kinds
from rl_sentinel.search.transforms import moved


def _law(variants: int = 3, skipped: int = 1) -> Law:
    def vary(case: Case, variant: int) -> Case | None:
        return with_draw(case, variant=variant) if variant != skipped else None

    return Law(
        code="XXX001",
        name="toy",
        stages=frozenset({"advantage"}),
        applies=lambda _boundary: "",
        vary=vary,
        expect=lambda _ask, _case: iter(()),
        variants=variants,
    )


def _turns(selected: Selection) -> list[tuple[int, list[object]]]:
    """Each batch in order of appearance, as its identity, with the variants under which it is tried."""
    turns: dict[int, list[object]] = {}
    for case in selected.cases:
        turns.setdefault(id(case.batch), []).append(case.draw["variant"])
    return list(turns.items())


def test_a_budget_tries_every_case_with_variants_in_turn() -> None:
    chosen = selection(_law(), 0, 6)
    turns, kinds = [variants for _, variants in _turns(chosen)], small_kinds()
    assert chosen.leading == len(chosen.cases)
    assert len(turns) == len(kinds) + 6 + 2  # the last are of many prompts, and of many responses
    for number, kind in enumerate(kinds):
        assert turns[number] == [0, 2] if kinds[:number].count(kind) < FULLY_VARIED else len(turns[number]) == 1
    assert {one for turn in turns if len(turn) == 1 for one in turn} == {0, 2}


def test_leading_cases_are_the_first_of_each_kind_and_random_ones() -> None:
    chosen = selection(_law(), 0, 0)
    leading = dict(_turns(Selection(chosen.cases[: chosen.leading], 0)))
    first = dict(reversed(list(zip(small_kinds(), small_cases(), strict=True))))
    for kind, case in first.items():
        assert leading.pop(id(case.batch)) == ([0, 2] if kind in VARIED_KINDS else [0])
    assert {tuple(turn) for turn in leading.values()} == {(0,), (2,)}  # the random ones, in turn
    everything = {id(case.batch) for case in all_cases(0, 0)}
    assert {id(case.batch) for case in chosen.cases} == everything
    assert everything >= {id(case.batch) for case in small_cases()}


def test_a_long_run_has_fewer_leading_cases_and_the_same_reserve() -> None:
    whole, long = selection(_law(), 0, 0), selection(_law(), 0, 0, long_run=True)
    assert long.leading < whole.leading
    assert set(OF_LONG_RUNS.kinds) < set(small_kinds())
    assert set(VARIED_KINDS) < set(OF_LONG_RUNS.kinds)
    assert {id(c.batch) for c in long.cases} == {id(c.batch) for c in whole.cases}


def test_a_law_whose_faults_show_on_almost_any_case_has_still_fewer() -> None:
    law = replace(_law(), few_cases=True)
    few, long = selection(law, 0, 0), selection(_law(), 0, 0, long_run=True)
    assert set(OF_FEW_CASES.kinds) < set(OF_LONG_RUNS.kinds)
    leading = {id(case.batch) for case in few.cases[: few.leading]}
    assert leading < {id(case.batch) for case in long.cases[: long.leading]}
    assert len(leading) == len(OF_FEW_CASES.kinds) + OF_FEW_CASES.random
    assert {id(c.batch) for c in few.cases} == {id(c.batch) for c in long.cases}
    assert selection(law, 0, 0, long_run=True) == few
    assert len(selection(law, 0, 4).cases) == len(selection(_law(), 0, 4).cases)


def test_leading_cases_under_a_setting_leave_out_those_of_the_seed() -> None:
    chosen, cases = selection(_law(), 0, 0), leading_cases("edge")
    leading = {id(case.batch) for case in chosen.cases[: chosen.leading]}
    assert {id(case.batch) for case in cases} < leading
    assert len(leading) - len(cases) == LEADING_DRAWN
    assert {case.setting for case in cases} == {"edge"}


def test_the_reserve_is_needed_until_enough_cases_fit() -> None:
    chosen = selection(_law(), 0, 0)
    assert not chosen.is_enough(chosen.leading - 1, ENOUGH)
    assert not chosen.is_enough(chosen.leading, ENOUGH - 1)
    assert chosen.is_enough(chosen.leading, ENOUGH)


def test_the_seed_draws_leading_cases_of_its_own() -> None:
    one, other = ({id(c.batch) for c in selection(_law(), seed, 0).cases} for seed in (0, 1))
    assert one - other
    assert other - one


def test_cases_are_inside_the_domain() -> None:
    def domain(batch: Batch) -> Batch:
        return moved(batch, "reward", torch.ones(batch.rows, dtype=torch.bool), 1.0)

    inside = {id(inside_domain(domain, case).batch) for case in all_cases(0, 0)}
    assert {id(case.batch) for case in selection(_law(), 0, 0, domain).cases} == inside
