"""A difference is reported only if float64 has it too."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.audit.engine.float64_check import is_rounding
from rl_sentinel.audit.engine.judge import search
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.expectations import Equal
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.small_cases import small_cases
from specimens import specimen

ROWS = {"advantage": Output("B", "reward", "advantage")}


def _expect(ask: Ask, case: Case) -> Iterator[Equal]:
    seen = ask(case).values["advantage"]
    yield Equal("zero", torch.zeros_like(seen), seen, scale=1.0)


LAW = Law(
    code="XYZ001",
    name="not-zero",
    stages=frozenset({"advantage"}),
    applies=lambda _boundary: "",
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
)


def _boundary(size: float, *, only_narrow: bool) -> Boundary:
    def compute(batch: Batch) -> Tensor:
        rounding = size if batch.reward.dtype == torch.float32 or not only_narrow else 0.0
        return 0 * batch.reward + rounding

    return specimen(compute, reads="reward", outputs=ROWS)


@pytest.mark.parametrize(
    ("size", "only_narrow", "reported"),
    [(2e-5, True, False), (2e-5, False, True), (1, True, False), (math.inf, True, True)],
)
def test_rounding(size: float, only_narrow: bool, reported: bool) -> None:
    """A difference of any size is reported only if float64 has it too; an overflow, always."""
    ask = Asker(_boundary(size, only_narrow=only_narrow), {})
    assert (search(LAW, ask, "default", seed=0, budget=2).found is not None) == reported


def test_taken_at_its_word() -> None:
    """A tolerance that the law gives, and a boundary that knows no float64, leave the break as it is."""
    case = small_cases()[0]
    ask = Asker(_boundary(2e-5, only_narrow=True), {})
    expectation = next(iter(_expect(ask, case)))
    assert is_rounding(LAW, ask, case, expectation)
    assert not is_rounding(LAW, ask, case, replace(expectation, tolerance=1e-5))

    def narrow(batch: Batch) -> Tensor:
        if batch.reward.dtype != torch.float32:
            message = "expected float32"
            raise TypeError(message)
        return 0 * batch.reward + 2e-5

    assert not is_rounding(LAW, Asker(specimen(narrow, reads="reward", outputs=ROWS), {}), case, expectation)
