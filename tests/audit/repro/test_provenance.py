"""Where the numbers of an expectation stand: rows, first columns and cells of a run's output."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rl_sentinel.audit.repro.provenance import Marker, View, views
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.case import Case
from rl_sentinel.core.expectations import Equal, Expectation, Pair
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Observation
from rl_sentinel.laws.dead_row_shifts_signal import LAW as ANY
from specimens import specimen

Take = Callable[[Tensor], Tensor]

CASE = Case(batch_of(torch.ones(2, 3, dtype=torch.bool)))

#: The numbers of two runs, all alike: they do not tell rows apart.
ALIKE = torch.zeros(2, 3)


def _places(take: Take, *, decides: bool = False) -> tuple[View | None, View | None]:
    """Where a law's two sides stand: the first of two runs, and what ``take`` makes of the second."""

    def expect(ask: Ask, case: Case) -> Iterator[Expectation]:
        first, second = (ask(case).values["x"] for _ in range(2))
        if decides and bool(first.any()):
            second = ask(case).values["x"]
        yield Equal("x", first, take(second))

    law: Law = replace(ANY, expect=expect)
    ask = Marker(specimen(lambda batch: batch.returns, reads="returns"), [Observation({"x": ALIKE})] * 2)
    (places,) = views(law, CASE, ask, 0, [Pair("x", ALIKE, take(ALIKE))])
    return places


@pytest.mark.parametrize(
    ("take", "cut"),
    [
        (lambda x: x, ""),
        (lambda x: x[[1, 0]], "[[1, 0]]"),
        (lambda x: x[:, :2], "[:, :2]"),
        (lambda x: x[[1]][:, :1], "[[1]][:, :1]"),
        (lambda x: x[:, 1:], ".flatten()[torch.tensor([[1, 2], [4, 5]])]"),
    ],
)
def test_equal_numbers_are_told_apart(take: Take, cut: str) -> None:
    """By the marks that stand for them when the law runs again."""
    assert _places(take) == (View(0), View(1, cut))


def test_computed_numbers_stand_nowhere() -> None:
    """A sum over cells is not among them."""
    assert _places(lambda x: x.mean(0, keepdim=True) + 0.25) == (View(0), None)


def test_numbers_of_the_batch_are_no_marks() -> None:
    """Whole numbers of a column, which look like marks of cells that the output does not have."""
    assert _places(lambda _: torch.full((2, 3), 7.0)) == (View(0), None)


def test_a_law_that_decides_by_the_numbers_is_not_followed() -> None:
    """On marks it makes another number of calls."""
    assert _places(lambda x: x, decides=True) == (None, None)
