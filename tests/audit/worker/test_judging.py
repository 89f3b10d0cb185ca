"""Only the runner compares: tolerances, non-finite numbers, and what was never compared."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.audit.worker.asking import Asker
from rl_sentinel.audit.worker.judging import LEADING, canary, compared, search
from rl_sentinel.cases.small import small_kinds
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Relation
from specimens import specimen


def test_nothing_to_compare_is_no_pass() -> None:
    """An empty place, or an expectation that is not finite, gives no measure."""
    one = torch.ones(2)
    assert compared(Relation("x", one, one, torch.zeros(2, dtype=torch.bool))) is None
    assert compared(Relation("x", one * math.nan, one)) is None


def test_not_a_number_is_infinitely_far() -> None:
    """A finite expectation met by NaN breaks at any tolerance."""
    measured = compared(Relation("x", torch.zeros(1), torch.tensor([math.nan]), tolerance=1e9))
    assert measured == (math.inf, 1e9)


def test_allowance_grows_with_what_enters() -> None:
    """64 roundings of float32 per unit of magnitude."""
    small = compared(Relation("x", torch.ones(1), torch.ones(1) + 1e-6))
    large = compared(Relation("x", torch.ones(1), torch.ones(1) + 1e-6, scale=99.0))
    assert small is not None
    assert large is not None
    assert 7e-6 < small[1] < 8e-6
    assert 7e-4 < large[1] < 8e-4


def test_equal_is_no_distance_and_nothing_finite_is_nothing_to_compare() -> None:
    """Places that are equal and infinite say nothing."""
    many = torch.tensor([1.0, float("inf")])
    assert compared(Relation("x", many, many.clone())) == (0.0, 0.0)
    assert compared(Relation("x", many, many.clone(), torch.tensor([False, True]))) is None


def test_canary_sees_what_cannot_move() -> None:
    """A constant is not judged."""
    still = specimen(lambda batch: torch.zeros_like(batch.reward).unsqueeze(1) * batch.mask, reads="reward mask")
    moving = specimen(lambda batch: batch.reward.unsqueeze(1) * batch.mask, reads="reward mask")
    assert canary(Asker(still, {}), "default") == "output advantage moves with no column that it reads"
    assert canary(Asker(moving, {}), "default") == ""


def test_a_drawn_batch_is_asked_once_for_all_laws_unless_fresh() -> None:
    """A second law is answered from what was kept; one that asks for a fresh call gets one."""
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
        relate=_same,
    )
    first = search(drawn, ask, "default", seed=0, budget=4)
    once = len(calls)
    search(drawn, ask, "default", seed=0, budget=4)
    assert (first.tried, len(calls)) == (once, once)
    search(replace(drawn, relate=_twice), ask, "default", seed=0, budget=4)
    assert len(calls) == 3 * once


def _same(ask: Ask, case: Case) -> Iterator[Relation]:
    seen = ask(case).values["advantage"]
    yield Relation("advantage", seen, seen)


def _twice(ask: Ask, case: Case) -> Iterator[Relation]:
    before, after = (ask(case, fresh=True).values["advantage"] for _ in range(2))
    yield Relation("advantage", before, after)


def test_variants_in_turn() -> None:
    """The first of each kind under every variant that fits, each other case under one, and none is left out."""
    seen: dict[int, list[object]] = {}

    def relate(_ask: Ask, case: Case) -> Iterator[Relation]:
        seen.setdefault(id(case.batch), []).append(case.draw["variant"])
        yield Relation("x", torch.zeros(1), torch.zeros(1))

    def vary(case: Case, variant: int) -> Case | None:
        return with_draw(case, variant=variant) if variant != 1 else None

    law = Law(
        code="XXX001",
        name="in-turn",
        stages=frozenset({"advantage"}),
        applies=lambda _boundary: "",
        vary=vary,
        relate=relate,
        variants=3,
    )
    boundary = specimen(lambda b: b.reward.unsqueeze(1) * b.mask, reads="reward mask")
    search(law, Asker(boundary, {}), "default", seed=0, budget=6)
    turns, kinds = list(seen.values()), small_kinds()
    assert len(turns) == len(kinds) + 6
    for number, kind in enumerate(kinds):
        assert turns[number] == [0, 2] if kinds[:number].count(kind) < LEADING else len(turns[number]) == 1
    assert {one for turn in turns if len(turn) == 1 for one in turn} == {0, 2}
