"""Ratios that overflow: every loss and weight of one, forwards, backwards, and twice."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.signal import kl, loss
from rl_sentinel.signal.kernels.modes import traced
from rl_sentinel.signal.ratios import exponential, weighed
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.reduce import Aggregation

#: Numbers of the losses, by parameter.
NUMBERS = {
    "clip_low": 0.2,
    "clip_high": 0.3,
    "ceiling": 3.0,
    "temperature": 1.0,
    "negative_temperature": 1.05,
    "penalty": 0.5,
}

#: How far one token has moved, in nats: its ratio is beyond float32, or 0.
FAR = (-200.0, -100.0, 100.0, 200.0)


def _filled(function: Callable[..., Tensor], count: float) -> Callable[..., Tensor]:
    known: dict[str, Any] = {**NUMBERS, "aggregation": Aggregation("token-mean", count)}
    return partial(function, **{n: v for n, v in known.items() if n in inspect.signature(function).parameters})


def _losses() -> dict[str, Callable[..., Tensor]]:
    """Each one of ``signal.loss`` that compares two policies."""
    found = {}
    for one in pkgutil.iter_modules(loss.__path__):
        function = importlib.import_module(f"{loss.__name__}.{one.name}").loss
        if "old_logprob" in inspect.signature(function).parameters:
            found[one.name] = function
    return found


LOSSES = _losses()


def _called(name: str, *columns: Tensor, count: float = 1.0) -> Tensor:
    """With all trained, and none chosen but the last token."""
    chosen = torch.zeros_like(columns[0], dtype=torch.bool)
    chosen[:, -1] = True
    more = {"chosen": chosen} if "chosen" in inspect.signature(LOSSES[name]).parameters else {}
    return _filled(LOSSES[name], count)(*columns, mask=torch.ones_like(chosen), **more)


@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_one_token_far_away(name: str, far: float, advantage: float, others: bool) -> None:  # noqa: FBT001 - a parameter
    """What is finite in float64 is the same in float32; a number is never NaN, and each gradient has its sign.

    The far token stands alone in its row, beside one that has not moved; the gradient is taken in blocks, and in one
    piece where other columns want one too.
    """
    found = []
    for dtype in (torch.float64, torch.float32):
        old = torch.tensor([[-300.0], [-1.0]], dtype=dtype)
        new = old + torch.tensor([[far], [0.0]], dtype=dtype)
        gain = torch.tensor([[advantage], [1.0]], dtype=dtype)
        leaf = new.requires_grad_()
        columns = [x.requires_grad_() if others else x for x in (old.clone(), gain)]
        value = _called(name, leaf, *columns)
        slopes = torch.autograd.grad(value, [leaf, *columns] if others else [leaf], allow_unused=True)
        found.append([value.detach(), *[torch.zeros_like(leaf) if s is None else s for s in slopes]])
    for exact, ours in zip(*found, strict=True):
        assert not ours.isnan().any(), (exact, ours)
        fits = exact.abs() < torch.finfo(torch.float32).max
        torch.testing.assert_close(ours[fits], exact[fits].float())
        assert torch.equal(ours[~fits].sign(), exact[~fits].sign().float())
        assert exact.isfinite().all()


def test_no_advantage_no_loss() -> None:
    """A token without an advantage adds 0, and has no slope, however far it is; what penalises distance goes on."""
    for name in set(LOSSES) - {"dro"}:
        leaf = torch.tensor([[-1.0, 0.0]], requires_grad=True)
        value = _called(name, leaf, torch.tensor([[-101.0, 0.0]]), torch.zeros(1, 2))
        (slope,) = torch.autograd.grad(value, leaf)
        assert value.item() == 0.0, name
        assert slope.tolist() == [[0.0, 0.0]], name


def test_infinite_weights_of_nothing() -> None:
    """Of an advantage of 0, and of an estimate of 0; of others they stay infinite."""
    mask = torch.ones(1, 2).bool()
    ready = Ready(
        mask=mask,
        live=mask[:, 0],
        kept=mask[:, 0],
        group=torch.zeros(1).long(),
        reward=torch.zeros(1),
        advantage=torch.tensor([[0.0, -2.0]]),
        outcome=False,
        weight=torch.full((1, 2), torch.inf),
    )
    assert ready.token_advantage().tolist() == [[0.0, -torch.inf]]
    estimate, new = torch.tensor([[0.0, 1.0]]), torch.tensor([[100.0, 100.0]], requires_grad=True)
    found = kl.importance_weighted(estimate, new, torch.zeros(1, 2), mask=mask)
    assert found.tolist() == [[0.0, torch.inf]]
    assert torch.autograd.grad(found[:, 0].sum(), new)[0].tolist() == [[0.0, 0.0]]


def test_what_is_no_number_stays_so() -> None:
    """Only the product of an infinite ratio and 0 is mended."""
    assert weighed(torch.tensor([torch.nan]), torch.tensor([0.0])).isnan().all()
    assert weighed(torch.tensor([torch.inf]), torch.tensor([torch.nan])).isnan().all()
    ratio = torch.tensor([torch.nan, torch.inf], requires_grad=True)
    assert weighed(ratio, torch.zeros(2)).isnan().tolist() == [True, False]


OWN = "ignore:`torch.jit.script` is deprecated:DeprecationWarning"  # torch's own, on the way to forward derivatives


@pytest.mark.filterwarnings(OWN)
def test_gradients() -> None:
    one, other = torch.rand(2, 5, dtype=torch.float64, requires_grad=True).unbind()
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda x: exponential(x) * 2, (one,))
        assert check(weighed, (one, other))
    assert torch.autograd.gradcheck(lambda x, y: weighed(exponential(x), y), (one, other), check_forward_ad=True)
    assert not traced(one)


@pytest.mark.filterwarnings(OWN)
@pytest.mark.parametrize("name", LOSSES)
def test_second_derivatives(name: str) -> None:
    torch.default_generator.manual_seed(3)
    old = -1 - torch.rand(2, 3, dtype=torch.float64)
    near, gain = old + 0.1 * torch.rand(2, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)

    def found(x: Tensor) -> Tensor:
        return _called(name, x, old, gain, count=6.0)

    leaf, move = near.clone().requires_grad_(), torch.randn_like(near)
    (slope,) = torch.autograd.grad(found(leaf), leaf, create_graph=True)
    bend = torch.autograd.grad(slope.square().sum() + 0 * leaf.sum(), leaf)[0]
    other = near.clone().requires_grad_()
    beside = old.clone().requires_grad_()  # in one piece
    whole = _called(name, other, beside, gain, count=6.0)
    (expected,) = torch.autograd.grad(whole, other, create_graph=True)
    torch.testing.assert_close(slope, expected)
    wanted = torch.autograd.grad(expected.square().sum() + 0 * other.sum(), other)[0]
    torch.testing.assert_close(bend, wanted)
    torch.testing.assert_close(torch.func.grad(found)(near), slope.detach())
    torch.testing.assert_close(torch.func.jvp(found, (near,), (move,))[1], (slope.detach() * move).sum())
