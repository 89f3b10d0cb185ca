"""Outputs in forward mode and with gradients that may be differentiated again: the same values and slopes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.adapters.library.derivative_modes import differentiable, forward
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.search.small_cases import small_cases

CASE = small_cases("default")[0].batch

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script:DeprecationWarning"
)  # torch's own forward mode uses it


class _Wrong(torch.autograd.Function):
    """A square whose tangent and whose slope under ``create_graph`` are wrong."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004 - the signature of torch
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * ctx.saved_tensors[0] * (5 if torch.is_grad_enabled() else 2)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        return tangents[0] * ctx.saved_tensors[0] * 3


def _sums(square: Callable[[Tensor], Tensor]) -> Callable[[Batch], dict[str, Tensor]]:
    return lambda batch: {"loss": square(batch.logprob).sum(), "reward": batch.reward * 2}


@pytest.mark.parametrize("mode", [forward, differentiable])
def test_values_and_slopes_are_the_same(mode: Any) -> None:
    batch = with_columns(CASE, logprob=CASE.logprob.clone().requires_grad_())
    found = mode(_sums(lambda x: x**2), batch, "logprob")
    assert found["loss"].item() == CASE.logprob.square().sum().item()
    assert found["reward"].tolist() == (2 * CASE.reward).tolist()
    torch.testing.assert_close(torch.autograd.grad(found["loss"], batch.logprob)[0], 2 * CASE.logprob)
    assert mode(_sums(lambda x: x**2), CASE, "logprob")["loss"].item() == found["loss"].item()


@pytest.mark.parametrize(("mode", "factor"), [(forward, 3), (differentiable, 5)])
def test_the_slope_is_that_of_the_mode(mode: Any, factor: int) -> None:
    batch = with_columns(CASE, logprob=CASE.logprob.clone().requires_grad_())
    found = mode(_sums(_Wrong.apply), batch, "logprob")
    torch.testing.assert_close(torch.autograd.grad(found["loss"], batch.logprob)[0], factor * CASE.logprob)
