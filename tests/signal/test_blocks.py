"""A loss in blocks is the loss in one piece: value, gradient, every aggregation, padded and packed."""

from collections.abc import Callable
from functools import partial
from typing import get_args

import pytest
import torch
from torch import Tensor

from rl_sentinel.signal import blocks
from rl_sentinel.signal.blocks import summed
from rl_sentinel.signal.loss import cispo, dual_clip, importance_sampling, ppo, sapo
from rl_sentinel.signal.reduce import Aggregation, Mode, aggregate
from rl_sentinel.signal.segments import Segments, packed

LOSSES: dict[str, Callable[..., Tensor]] = {
    "ppo": partial(ppo.loss, clip_low=0.1, clip_high=0.3),
    "dual clip": partial(dual_clip.loss, clip_low=0.1, clip_high=0.3, ceiling=2.0),
    "cispo": partial(cispo.loss, clip_low=0.1, clip_high=0.3),
    "sapo": partial(sapo.loss, temperature=1.0, negative_temperature=2.0),
    "importance sampling": importance_sampling.loss,
}


def _columns(rows: int = 7, width: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(3)
    length = torch.randint(0, width + 1, (rows,), generator=draw)
    inside = torch.arange(width) < length.unsqueeze(1)
    mask = inside & (torch.rand(rows, width, generator=draw) < 0.8)
    new, old, advantage = (torch.randn(3, rows, width, generator=draw, dtype=torch.float64)).unbind()
    return new, old, advantage, mask, length


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("name", LOSSES)
def test_size_of_a_block_makes_no_difference(name: str, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """One token at a time, some rows, all; packed tokens too, cut within a row."""
    new, old, advantage, mask, length = _columns()
    counts = torch.full((len(mask),), mask.shape[1]) + torch.arange(len(mask))
    whole = Aggregation(mode, 3.0, counts if mode == "prompt-mean" else None)
    found = []
    for size in (1, 2 * mask.shape[1], 10_000):
        monkeypatch.setattr(blocks, "BLOCK", size)
        leaf = new.clone().requires_grad_()
        value = LOSSES[name](leaf, old, advantage, mask=mask, aggregation=whole)
        found.append((value, torch.autograd.grad(value, leaf)[0]))
        flat = [packed(x, length=length) for x in (new, old, advantage)]
        flat[0].requires_grad_()
        value = LOSSES[name](*flat, mask=Segments(packed(mask, length=length), length), aggregation=whole)
        wide = torch.zeros_like(new)
        wide[torch.arange(mask.shape[1]) < length.unsqueeze(1)] = torch.autograd.grad(value, flat[0])[0]
        found.append((value, wide))
    for value, slope in found[1:]:
        torch.testing.assert_close(value, found[0][0])
        torch.testing.assert_close(slope, found[0][1])
    assert bool(found[0][1].any())


def test_equal_to_one_piece_with_the_gradient_to_every_column() -> None:
    """Where another column's gradient is wanted it is there; the leaf's is the same."""
    new, old, advantage, mask, _ = _columns()
    token_mean = Aggregation("token-mean", 4.0)
    leaf, other = new.clone().requires_grad_(), advantage.clone().requires_grad_()

    def weighted(mask: Tensor, x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        value = torch.where(mask, x.exp() * a, 0.0)
        return value, value

    value = summed(weighted, leaf, other, mask=mask, aggregation=token_mean)
    slopes = torch.autograd.grad(value, (leaf, other))
    again = aggregate(leaf.exp() * other, mask=mask, aggregation=token_mean)
    torch.testing.assert_close(value, again)
    for ours, expected in zip(slopes, torch.autograd.grad(again, (leaf, other)), strict=True):
        torch.testing.assert_close(ours, expected)
    assert old.grad is None


def test_no_gradient_is_kept_where_none_is_asked() -> None:
    """A number without a history, and 0 where there are no rows."""
    new, old, advantage, mask, _ = _columns()
    one = Aggregation("token-sum", 1.0)

    def same(mask: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(mask, x, 0.0), mask.to(x.dtype)

    assert not summed(same, new, mask=mask, aggregation=one).requires_grad
    assert summed(same, new[:0], mask=mask[:0], aggregation=one).item() == 0.0
    with torch.no_grad():
        leaf = new.clone().requires_grad_()
        assert not ppo.loss(leaf, old, advantage, mask=mask, clip_low=0.1, clip_high=0.1, aggregation=one).requires_grad


def test_gradient_is_that_of_small_differences() -> None:
    """In float64, through the scale of what the loss is part of."""
    new, old, advantage, mask, _ = _columns(3, 4)
    near, whole = old + 0.05 * new, Aggregation("sequence-mean-token-mean", 2.0)
    near.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: 3 * ppo.loss(x, old, advantage, mask=mask, clip_low=0.3, clip_high=0.3, aggregation=whole), (near,)
    )
