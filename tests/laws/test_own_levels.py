"""Levels at functions of the user's own, where callers may or may not pass rows without a trained token."""

from dataclasses import replace

import pytest
import torch

from rl_sentinel.core.batch import EXCLUDED, batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.law import Law
from rl_sentinel.laws.constant_group_amplified import LAW as CONSTANT
from rl_sentinel.laws.degenerate_batch_not_finite import LAW as NOT_FINITE
from rl_sentinel.laws.masking_differs_from_removal import LAW as REMOVAL

BATCH = batch_of(torch.tensor([[True], [False]]), excluded=torch.tensor([0, EXCLUDED["rejected"]]))
CASE = Case(BATCH, draw={"row": 1})


@pytest.mark.parametrize(
    ("law", "unknown", "known"),
    [(REMOVAL, "hazard", "contested"), (NOT_FINITE, "hazard", "fault"), (CONSTANT, "hazard", "hazard")],
    ids=lambda one: getattr(one, "code", one),
)
def test_known_callers_that_pass_dead_rows(law: Law, unknown: str, known: str) -> None:
    own = Boundary(path="m.f", stage="advantage", steps=(), outputs={}, own=True)
    assert law.level_at(own, CASE) == unknown
    assert law.level_at(replace(own, has_dead_rows=True), CASE) == known
    assert law.level_at(replace(own, own=False), CASE) == law.level(CASE)
