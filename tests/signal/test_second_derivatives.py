"""Derivatives of derivatives, forwards and backwards, at the places where a slope is 0: nothing is cut off there."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from sound_arguments import PUBLIC, arguments
from torch import Tensor
from torch.autograd.functional import hessian, hvp, jvp
from torch.func import grad, jacfwd, jacrev

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal import kl
from rl_sentinel.signal.loss import importance_sampling, ppo, sapo
from rl_sentinel.signal.ratios import exponential
from rl_sentinel.signal.reduce import Aggregation

ONE = Aggregation("token-mean", 1.0)
NOTHING, MASK = torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.bool)

LOSSES: dict[str, tuple[Callable[..., Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "ppo": (partial(ppo.loss, clip_low=0.2, clip_high=0.2), lambda x, a: -(x.exp() * a).sum()),
    "sapo": (
        partial(sapo.loss, temperature=1.0, negative_temperature=1.05),
        lambda x, a: (
            -(
                4 * torch.sigmoid(torch.where(a > 0, 1.0, 1.05) * (x.exp() - 1)) * a / torch.where(a > 0, 1.0, 1.05)
            ).sum()
        ),
    ),
    "importance sampling": (importance_sampling.loss, lambda x, a: -(x.exp() * a).sum()),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("advantage", [0.0, 1.0, -1.0])
@pytest.mark.parametrize("along", [jacfwd, jacrev])
def test_of_the_slope_by_the_advantage(
    name: str, advantage: float, along: Callable[..., Callable[..., Tensor]]
) -> None:
    """As the plain formula has it where the ratio is 1, at an advantage of 0 too."""
    ours, plain = LOSSES[name]
    given = NOTHING + advantage
    found = along(lambda a: grad(lambda x: ours(x, NOTHING, a, mask=MASK, aggregation=ONE))(NOTHING))(given)
    assert torch.allclose(found, along(lambda a: grad(lambda x: plain(x, a))(NOTHING))(given))


def test_products_with_a_second_derivative() -> None:
    """``torch.autograd.functional`` works through slopes that are 0."""
    x, v = torch.tensor([[0.0, 0.5]], dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    moved = jvp(exponential, x, v)[1]  # type: ignore[no-untyped-call]  # torch has no types here
    assert torch.allclose(moved, x.exp())
    loss = partial(importance_sampling.loss, mask=MASK, aggregation=ONE)
    bent = hvp(lambda y: loss(y, NOTHING, v), x, v)[1]  # type: ignore[no-untyped-call]  # torch has no types here
    assert torch.allclose(bent, -x.exp())


def test_of_a_weighted_kl_where_policies_are_equal() -> None:
    """The second derivative of exp(x) x at 0 is 2."""
    x, mask = NOTHING[:, :1], MASK[:, :1]
    price = lambda y: kl.importance_weighted(kl.k1(y, x, mask=mask), y, x, mask=mask).sum()  # noqa: E731 - one line
    found = hessian(price, x)  # type: ignore[no-untyped-call]  # torch has no types here
    assert found.item() == pytest.approx(2.0)


@pytest.mark.parametrize("name", [n for n in PUBLIC if n.startswith("loss.")])
def test_a_loss_of_many_batches_at_once_is_refused(name: str) -> None:
    """Mapped by ``torch.vmap``, itself or its gradient, in one line; the gradient of one is not."""
    given = arguments(name)
    first = given.pop("logprob")
    one = partial(PUBLIC[name], **given)
    assert grad(one)(first).shape == first.shape
    for many in (torch.vmap(one), torch.vmap(grad(one))):
        with pytest.raises(InputError, match=r"^a column is mapped by torch\.vmap, expected plain tensors: .*$"):
            many(torch.stack([first, first]))
