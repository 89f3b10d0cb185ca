"""Derivatives of every public function: forward mode, second derivatives, overflow of ratios, gradients that are 0."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from sound_arguments import PUBLIC, arguments, words
from test_properties import TRAINED, with_gradients
from torch import Tensor
from torch.autograd.functional import hessian, hvp, jvp
from torch.func import grad, jacfwd, jacrev

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal import kl
from rl_sentinel.signal.kernels import sizes
from rl_sentinel.signal.kernels.modes import traced
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
    given = arguments(name)
    first = given.pop("logprob")
    one = partial(PUBLIC[name], **given)
    assert grad(one)(first).shape == first.shape
    for many in (torch.vmap(one), torch.vmap(grad(one))):
        with pytest.raises(InputError, match=r"^a column is mapped by torch\.vmap, expected plain tensors: .*$"):
            many(torch.stack([first, first]))


#: Parameters that gradients of training go to.
LEARNED = frozenset({"logprob", "value", "values", "logits"})

#: Nats by which a response differs from the policy before: its ratio overflows float32, but not float64.
FAR = 200.0

Answer = Callable[[Mapping[str, Any]], list[Tensor]]

DIFFERENTIABLE = [n for n in PUBLIC if LEARNED & set(arguments(n)) and n != "staleness.fresh_rows"]
WEIGHING = [n for n in PUBLIC if {"logprob", "old_logprob", "advantage"} <= set(arguments(n))]


def _answer(name: str) -> Answer:
    def call(given: Mapping[str, Any]) -> list[Tensor]:
        result = PUBLIC[name](**given)
        return [x for x in (result if isinstance(result, tuple) else (result,)) if isinstance(x, Tensor)]

    return call


def _each(names: list[str]) -> list[Any]:
    return [pytest.param(n, w, id=f"{n} {' '.join(map(str, w.values()))}".strip()) for n in names for w in words(n)]


@pytest.mark.parametrize(("name", "chosen"), _each(list(PUBLIC)))
def test_values_do_not_depend_on_gradients(name: str, chosen: dict[str, Any]) -> None:
    given, answer = arguments(name, TRAINED) | chosen, _answer(name)
    torch.testing.assert_close([x.detach() for x in answer(with_gradients(given))], answer(given))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
@pytest.mark.parametrize(("name", "chosen"), _each(DIFFERENTIABLE))
def test_forward_mode(name: str, chosen: dict[str, Any]) -> None:
    assert_same_forwards(_answer(name), arguments(name, TRAINED) | chosen)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
@pytest.mark.parametrize(("name", "chosen"), _each(DIFFERENTIABLE))
def test_second_derivatives(name: str, chosen: dict[str, Any]) -> None:
    assert_same_twice(_answer(name), arguments(name, TRAINED) | chosen)


@pytest.mark.parametrize("large", [sizes.LOSS, 0], ids=["formula", "kernel"])
@pytest.mark.parametrize(("name", "chosen"), _each(WEIGHING))
def test_a_ratio_that_overflows_counts_only_where_it_weighs(
    name: str, chosen: dict[str, Any], large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Float32 gives what float64 does, to which the ratio is finite, in value and in gradient."""
    monkeypatch.setattr(sizes, "LOSS", large)
    assert_same_far_apart(_answer(name), arguments(name, TRAINED) | chosen)


@pytest.mark.parametrize(("name", "chosen"), _each(WEIGHING))
def test_nothing_jumps_where_a_token_was_certain(name: str, chosen: dict[str, Any]) -> None:
    """A probability of 1 under the old policy gives what one a hair below gives."""
    given = _in_type(arguments(name, TRAINED) | chosen, torch.float64)
    near, at = (
        _values_and_slopes(_answer(name), given | {"old_logprob": _first_row(given["old_logprob"], -away)}, "logprob")
        for away in (1e-12, 0.0)
    )
    torch.testing.assert_close(at, near, rtol=1e-4, atol=1e-6)


def assert_same_forwards(answer: Answer, given: Mapping[str, Any]) -> None:
    total, leaves, along = _total(answer, given)
    expected = total(*leaves)
    if not expected.requires_grad:
        return
    value, slope = torch.func.jvp(total, tuple(x.detach() for x in leaves), along)[:2]
    reverse = _dot(_slopes(expected, leaves), along)
    torch.testing.assert_close([value, slope], [expected.detach(), reverse.detach()], rtol=1e-6, atol=1e-8)


def assert_same_twice(answer: Answer, given: Mapping[str, Any]) -> None:
    """Reverse mode twice agrees with forward mode over reverse mode."""
    for only in (None, LEARNED):
        total, leaves, along = _total(answer, given, only)
        first = total(*leaves)
        if not first.requires_grad:
            return
        twice = _slopes(_dot(_slopes(first, leaves, again=True), along), leaves)
        over = torch.func.grad(total, argnums=tuple(range(len(leaves))))
        plain = torch.func.jvp(over, tuple(x.detach() for x in leaves), along)[1]
        torch.testing.assert_close([x.detach() for x in twice], list(plain), rtol=1e-6, atol=1e-8)


def assert_same_far_apart(answer: Answer, given: Mapping[str, Any]) -> None:
    """Float32 agrees with float64 where the first row's ratio overflows float32."""
    for away, gain, wanted in product((FAR, -FAR), (0.0, 1.0, -1.0), ("logprob", "advantage")):
        own = {**given, "advantage": _first_row(given["advantage"], gain)}
        own["old_logprob"] = _first_row(given["old_logprob"], -FAR - 1)  # so that either way is a probability
        own["logprob"] = own["old_logprob"] + _first_row(torch.zeros_like(given["old_logprob"]), away)
        narrow, double = (
            _values_and_slopes(answer, _in_type(own, kind), wanted) for kind in (torch.float32, torch.float64)
        )
        expected = [x.to(torch.float32) if x.is_floating_point() else x for x in double]
        torch.testing.assert_close(narrow, expected, rtol=1e-3, atol=1e-5)


def _first_row(column: Tensor, number: float) -> Tensor:
    return torch.cat([torch.full_like(column[:1], number), column[1:]])


def _in_type(given: Mapping[str, Any], kind: torch.dtype) -> dict[str, Any]:
    return {n: v.to(kind) if isinstance(v, Tensor) and v.is_floating_point() else v for n, v in given.items()}


def _values_and_slopes(answer: Answer, given: Mapping[str, Any], wanted: str) -> list[Tensor]:
    """All numbers that a function gives, and the gradient of each to one column."""
    leaf = given[wanted].detach().clone().requires_grad_()
    found = answer({**given, wanted: leaf})
    slopes = [torch.autograd.grad(v.sum(), leaf, retain_graph=True)[0] for v in found if v.requires_grad]
    return [v.detach() for v in (*found, *slopes)]


def _total(
    answer: Answer, given: Mapping[str, Any], only: Collection[str] | None = None
) -> tuple[Callable[..., Tensor], list[Tensor], tuple[Tensor, ...]]:
    """A mix of all results as a function of the columns; the columns; a direction to move them in."""
    double = _in_type(given, torch.float64)
    names = [n for n, v in double.items() if isinstance(v, Tensor) and v.is_floating_point()]
    names = [n for n in names if only is None or n in only]
    # Learned columns hold no number twice, so that no derivative is taken at a tie.
    leaves = [(double[n] + (0.4 * _waves(double[n]) if n in LEARNED else 0.0)).detach().requires_grad_() for n in names]

    def total(*columns: Tensor) -> Tensor:
        results = [v for v in answer(double | dict(zip(names, columns, strict=True))) if v.is_floating_point()]
        return torch.stack([(v * _waves(v)).sum() for v in results]).sum() if results else torch.zeros(())

    return total, leaves, tuple(_waves(x, 2.0 + number) for number, x in enumerate(leaves))


def _waves(like: Tensor, first: float = 1.0) -> Tensor:
    return torch.sin(first + 7.3 * torch.arange(like.numel(), dtype=torch.float64)).reshape(like.shape)


def _slopes(value: Tensor, leaves: list[Tensor], *, again: bool = False) -> list[Tensor]:
    if not value.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    slopes = torch.autograd.grad(value, leaves, create_graph=again, allow_unused=True)
    return [torch.zeros_like(x) if s is None else s for s, x in zip(slopes, leaves, strict=True)]


def _dot(slopes: list[Tensor], along: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([(s * a).sum() for s, a in zip(slopes, along, strict=True)]).sum()


class _Once(torch.autograd.Function):
    """A square whose gradient has no derivative of its own."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(values.detach())
        return values.square()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        doubled: Tensor = 2 * ctx.saved_tensors[0]
        return slopes[0] * doubled


def _weighed(given: Mapping[str, Any], wrong: str = "") -> list[Tensor]:
    """Ratios times advantages summed over rows, with one fault."""
    log_ratio, gain = given["logprob"] - given["old_logprob"], given["advantage"]
    ratio = log_ratio.exp() if wrong == "overflow" else torch.where(gain == 0, 0.0, log_ratio).exp()
    ratio = torch.where(ratio.isinf(), 0.0, ratio) if wrong == "cut" else ratio
    values = torch.where(given["mask"], ratio * gain, 0.0).sum(dim=1)
    if wrong == "twice" and not traced(log_ratio):
        values = _Once.apply(log_ratio).sum(dim=1)  # type: ignore[no-untyped-call]  # torch has no types here
    return [values * 2 if wrong == "forwards" and traced(values) else values]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
@pytest.mark.parametrize(
    ("judge", "wrong"),
    [
        (assert_same_forwards, "forwards"),
        (assert_same_twice, "twice"),
        (assert_same_far_apart, "overflow"),
        (assert_same_far_apart, "cut"),
    ],
)
def test_each_check_fails_for_its_fault(judge: Callable[[Answer, Mapping[str, Any]], None], wrong: str) -> None:
    given = arguments("loss.importance_sampling.loss", torch.ones_like(TRAINED))
    judge(_weighed, given)
    with pytest.raises(AssertionError):
        judge(partial(_weighed, wrong=wrong), given)
