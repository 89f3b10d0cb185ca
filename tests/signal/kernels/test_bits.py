"""Masks as integers give what ``torch.where`` and reductions of bools do."""

import pytest
import torch

from rl_sentinel.signal.kernels import bits

MASKS = [torch.tensor([[True, False, True], [False] * 3]), torch.zeros(2, 0).bool(), torch.ones(0, 3).bool()]


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_zeroed(kind: torch.dtype) -> None:
    """NaN and infinity too leave exactly 0 behind."""
    values = torch.tensor([[1.5, torch.inf, -2.0], [0.0, -torch.inf, 3.0]]).nan_to_num(7.0).to(kind)
    assert torch.equal(bits.zeroed(values, MASKS[0]), torch.where(MASKS[0], values, 0))
    wide = torch.full((2, 3), torch.nan)
    assert bits.zeroed(wide, MASKS[0] & False).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_reductions_of_masks(mask: torch.Tensor) -> None:
    assert torch.equal(bits.count_true(mask), mask.sum(dim=1))
    assert torch.equal(bits.any_true(mask), mask.any(dim=1))
    assert bits.anywhere(mask) == bool(mask.any())
