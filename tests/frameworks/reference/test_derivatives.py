"""Functions with a fault in one way of differentiating, beside the same without it."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.frameworks.reference.derivatives import (
    same_far_apart,
    same_forwards,
    same_twice,
    same_with_gradient,
)
from rl_sentinel.signal.ratios import traced

MASK = torch.tensor([[True, True], [True, False]])
COLUMNS = {
    "logprob": torch.tensor([[-0.5, -1.0], [-0.25, -2.0]]),
    "old_logprob": torch.tensor([[-0.75, -0.5], [-1.0, -0.25]]),
    "advantage": torch.tensor([[0.5, -1.0], [2.0, 0.25]]),
    "mask": MASK,
}


def _answer(given: Mapping[str, Any], *, wrong: str = "") -> list[Tensor]:
    """The sum of ratios by advantages, with 0 beside what has overflowed, and what is wrong about it."""
    log_ratio, gain = given["logprob"] - given["old_logprob"], given["advantage"]
    ratio = torch.where(gain == 0, 0.0, log_ratio).exp()
    if wrong == "overflow":
        ratio = log_ratio.exp()
    if wrong == "cut":
        ratio = torch.where(ratio.isinf(), 0.0, ratio)
    found = torch.where(given["mask"], ratio * gain, 0.0).sum(dim=1)
    if wrong == "forwards" and traced(found):
        found = found * 2
    if wrong == "with a gradient" and gain.requires_grad:
        found = -found
    if wrong == "twice, of what is trained alone" and not gain.requires_grad:
        found = _Once.apply(log_ratio).sum(dim=1)  # type: ignore[no-untyped-call]  # torch has no types here
    if wrong == "twice":
        found = _Once.apply(log_ratio).sum(dim=1)  # type: ignore[no-untyped-call]  # torch has no types here
    return [found]


class _Once(torch.autograd.Function):
    """A square whose slope carries no gradient of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor) -> Tensor:
        return values.square()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004 - torch gives it
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        (values,) = ctx.saved_tensors
        again: Tensor = values if traced(values) else values.detach()
        return slopes[0] * again * 2

    @staticmethod
    def jvp(ctx: Any, *moves: Tensor) -> Tensor:
        values: Tensor = ctx.saved_tensors[0]
        return moves[0] * values * 2


JUDGES = {
    "forwards": same_forwards,
    "twice": same_twice,
    "twice, of what is trained alone": same_twice,
    "with a gradient": same_with_gradient,
    "overflow": same_far_apart,
    "cut": same_far_apart,
}


@pytest.mark.parametrize("wrong", JUDGES)
def test_one_way_is_wrong(wrong: str) -> None:
    """What is right is taken; each fault is refused by the judge of its way."""
    JUDGES[wrong](_answer, COLUMNS)
    with pytest.raises(ValueError, match="expected"):
        JUDGES[wrong](lambda given: _answer(given, wrong=wrong), COLUMNS)


def test_no_gradient() -> None:
    """What carries none has no derivative to compare."""
    same_forwards(lambda given: [given["logprob"].detach()], COLUMNS)
    same_twice(lambda given: [given["logprob"].detach()], COLUMNS)
