"""Accepted values of advantages, also where a row does not train."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, batch_of, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.search.claimed_advantages import accepted_advantages, advantages_of_others, are_comparable
from specimens import specimen

REWARD = torch.tensor([1.0, 0.0, 5.0, 2.0, 2.5])
GROUP = torch.tensor([0, 0, 0, 1, 1])
CENTERED = "centered"


def _boundary() -> Boundary:
    claims: dict[str, Any] = {"algorithm": "grpo", "standardized": "no"}
    return specimen(lambda b: b.reward, reads="reward group mask", stage="advantage", claims=claims)


def _batch(*dead: int, **columns: Tensor) -> Batch:
    mask = torch.ones(5, 2, dtype=torch.bool)
    mask[list(dead)] = False
    return batch_of(mask, length=torch.full((5,), 2), reward=REWARD, group=GROUP, **columns)


def _of_others(batch: Batch) -> tuple[list[float], list[bool]] | None:
    boundary = _boundary()
    found = advantages_of_others(boundary, next(iter(boundary.outputs)), Case(batch), CENTERED)
    if found is None:
        return None
    value, where = found
    return (value if value.dim() == 1 else value[:, 0]).tolist(), (where if where.dim() == 1 else where[:, 0]).tolist()


def test_all_rows_count_in_a_batch_that_trains() -> None:
    boundary = _boundary()
    values, where = accepted_advantages(boundary, next(iter(boundary.outputs)), Case(_batch()))
    assert set(values) == {CENTERED}
    value = values[CENTERED].reshape(5, -1)[:, 0]
    assert value.tolist() == pytest.approx([-1.0, -2.0, 3.0, -0.25, 0.25])
    assert bool(where.all())


def test_a_dead_row_leaves_the_mean_of_the_others() -> None:
    """Row 2 does not train; of the second group only one row trains, which compares with no other."""
    assert not are_comparable(_boundary(), _batch(2))
    found = _of_others(_batch(2, 4))
    assert found is not None
    assert found[0][:2] == pytest.approx([0.5, -0.5])
    assert found[1] == [True, True, False, False, False]


@pytest.mark.parametrize(
    "changed",
    [
        {"mask": torch.tensor([[True, False], [True, True], [False, False], [True, True], [True, True]])},
        {"scored": torch.tensor([False, True, True, True, True])},
        {"token_reward": torch.full((5, 2), 0.5)},
        {"trajectory": torch.tensor([0, 0, 1, 2, 3])},
    ],
    ids=["an end that does not train", "no score", "rewards per token", "two steps of a trajectory"],
)
def test_formulas_do_not_say_what_other_rows_get(changed: dict[str, Tensor]) -> None:
    assert _of_others(with_columns(_batch(2), **changed)) is None


def test_an_unknown_reading_has_no_value() -> None:
    boundary = _boundary()
    assert advantages_of_others(boundary, next(iter(boundary.outputs)), Case(_batch(2)), "by rank") is None
