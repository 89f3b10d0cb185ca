"""A case is changed by making another."""

from dataclasses import FrozenInstanceError

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.case import Case, with_batch, with_draw

BATCH = batch_of(torch.ones(2, 2).bool())


def _case() -> Case:
    return Case(batch=BATCH, setting="edge", override={"epsilon": 0.0}, draw={"row": 1, "amount": 100.0}, seed=7)


def test_another_batch_keeps_all_else() -> None:
    case, other = _case(), batch_of(torch.ones(1, 1).bool())
    found = with_batch(case, other)
    assert found.batch is other
    assert (found.setting, found.override, found.draw, found.seed) == (case.setting, case.override, case.draw, 7)
    assert case.batch is BATCH


def test_a_draw_takes_the_place_of_the_last() -> None:
    """Numbers of an earlier variant are gone, so that a law reads only its own; the case itself stays."""
    case = _case()
    found = with_draw(case, variant=2)
    assert found.draw == {"variant": 2}
    assert (found.batch, found.setting, found.override, found.seed) == (BATCH, "edge", {"epsilon": 0.0}, 7)
    assert case.draw == {"row": 1, "amount": 100.0}


def test_no_case_is_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        _case().seed = 8  # type: ignore[misc]  # which is what is refused
    one, other = Case(batch=BATCH), Case(batch=BATCH)
    assert (one.setting, one.override, one.draw, one.seed) == ("default", {}, {}, 0)
    assert one.draw is not other.draw
    assert one != other  # tensors are not compared
