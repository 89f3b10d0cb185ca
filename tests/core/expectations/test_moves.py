"""A change moves an output."""

import torch

from rl_sentinel.core.expectations import Change, Moves

OLD, NEW = torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 0.5]])
CHANGE = Change("the outcome of row 0")


def test_no_effect() -> None:
    moves = Moves("advantage", CHANGE, NEW != OLD, {"advantage": (OLD, NEW)}, reason="why")
    assert moves.measure() == (1.0, 0.0)
    assert moves.sentence() == "the outcome of row 0 had no effect on advantage at row 0, token 0: why"
    knob = Moves("any output", Change("X"), torch.tensor(data=False), {}, trials=67)
    assert knob.sentence() == "X had no effect on any output on any of 67 batches"
    assert knob.exact


def test_an_effect_the_wrong_way() -> None:
    moves = Moves("advantage", CHANGE, OLD < NEW, {"advantage": (OLD, NEW)}, NEW != OLD, direction=1)
    assert moves.sentence() == "the outcome of row 0 moves advantage at row 0, token 1 from 1 to 0.5, expected a rise"
    fall = Moves("advantage", CHANGE, OLD > NEW, {"advantage": (OLD, NEW)}, NEW != OLD, direction=-1)
    assert fall.measure() == (0.0, 0.0)
    assert Moves("advantage", CHANGE, NEW != OLD, {}, torch.zeros(1, 2).bool()).measure() is None
