"""Losses against the oracle, and gradients: by differences of the oracle itself, and by gradcheck."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from oracle import losses, tokens
from oracle.draws import Draw, cases
from torch import Tensor

from rl_sentinel.signal import kl, minibatches, penalty, reduce

#: Half the distance over which a difference of the oracle is taken, in nats.
STEP = 1e-5

MODES: tuple[reduce.Mode, ...] = get_args(reduce.Mode)


def _call(name: str, x: Draw, logprob: Tensor, aggregation: reduce.Aggregation) -> Tensor:
    function: Callable[..., Tensor] = importlib.import_module(f"rl_sentinel.signal.loss.{name}").loss
    columns = [logprob, x.advantage] if name == "reinforce" else [logprob, x.old, x.advantage]
    apart = {"chosen": _chosen(x)} if name in losses.CHOSEN else {}
    return function(*columns, mask=x.mask, aggregation=aggregation, **losses.NUMBERS[name], **apart)


def _chosen(x: Draw) -> Tensor:
    """Half of the trained tokens, by a column that no loss reads."""
    return x.value > 0


#: Losses of probabilities, whose log-probs are at most 0.
_BELOW = ("dppo_tv", "dppo_kl")


def _fit(name: str, x: Draw) -> Draw:
    return replace(x, logprob=-x.logprob.abs(), old=-x.old.abs()) if name in _BELOW else x


def _expected(name: str, x: Draw, logprob: Tensor, aggregation: reduce.Aggregation) -> float:
    """The oracle's loss of log-probs that moved, with those whose gradient is stopped left where they were."""
    new, frozen, old, weight, mask = (c.tolist() for c in (logprob, x.logprob, x.old, x.advantage, x.mask))
    found = losses.per_token(name, new, frozen, old, weight, mask, _chosen(x).tolist())
    return tokens.aggregate(found, mask, aggregation.mode, aggregation.denominator, x.group.tolist())


@pytest.fixture(scope="module")
def drawn() -> list[Draw]:
    """2,000 small batches."""
    return list(cases(seed=1))


def _aggregation(i: int, x: Draw) -> reduce.Aggregation:
    mode = MODES[i % len(MODES)]
    of_prompts = minibatches.aggregation("prompt-mean", mask=x.mask, group=x.group).prompt_tokens
    return reduce.Aggregation(mode, float(x.mask.sum()) + 1, of_prompts if mode == "prompt-mean" else None)


@pytest.mark.parametrize("name", losses.LOSSES)
def test_losses(name: str, drawn: list[Draw]) -> None:
    for i, x in enumerate(_fit(name, one) for one in drawn):
        by = _aggregation(i, x)
        expected = _expected(name, x, x.logprob, by)
        assert _call(name, x, x.logprob, by).item() == pytest.approx(expected, rel=1e-9, abs=1e-12), i


@pytest.mark.parametrize("name", losses.LOSSES)
def test_slopes_of_losses(name: str, drawn: list[Draw]) -> None:
    """At each trained token the difference of two losses of the oracle; exactly 0 elsewhere."""
    for i, x in enumerate(_fit(name, one) for one in drawn[:100]):
        by, leaf = _aggregation(i, x), x.logprob.clone().requires_grad_()
        (slope,) = torch.autograd.grad(_call(name, x, leaf, by), leaf)
        assert not slope[~x.mask].any()
        for b, t in torch.nonzero(x.mask).tolist():
            up, down = x.logprob.clone(), x.logprob.clone()
            up[b, t] += STEP
            down[b, t] -= STEP
            expected = (_expected(name, x, up, by) - _expected(name, x, down, by)) / (2 * STEP)
            assert slope[b, t].item() == pytest.approx(expected, rel=1e-5, abs=1e-7), (i, b, t)


def _checked(function: Callable[..., Tensor], *columns: Tensor) -> bool:
    leaves = [c.clone().requires_grad_() for c in columns]
    return bool(torch.autograd.gradcheck(function, leaves))


#: Name -> a function of current and other log-probs with the gradient that its formula has.
DIFFERENTIABLE: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "k1": lambda new, other, mask: kl.k1(new, other, mask=mask),
    "k2": lambda new, other, mask: kl.k2(new, other, mask=mask),
    "k3": lambda new, other, mask: kl.k3(new, other, mask=mask),
    "absolute": lambda new, other, mask: kl.absolute(new, other, mask=mask),
    "aggregate": lambda new, other, mask: reduce.aggregate(
        new * other,
        mask=mask,
        aggregation=minibatches.aggregation("prompt-mean", mask=mask, group=torch.arange(len(mask)) // 2),
    ),
    "row_means": lambda new, other, mask: reduce.row_means(new * other, mask=mask),
    "as_loss": lambda new, other, mask: penalty.as_loss(
        kl.k3(new, other, mask=mask), mask=mask, coefficient=0.3, aggregation=reduce.Aggregation("token-mean", 3.0)
    ),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradcheck(name: str, drawn: list[Draw]) -> None:
    """With respect to both policies; off the mask there is 0 and no slope."""
    for x in drawn[:40]:
        new, other = (c.nan_to_num() for c in (x.logprob, x.ref))
        assert _checked(lambda a, b, m=x.mask: DIFFERENTIABLE[name](a, b, m), new, other)


def test_gradcheck_of_the_weighted_estimate(drawn: list[Draw]) -> None:
    for x in drawn[:40]:
        columns: list[Any] = [c.nan_to_num() for c in (x.value, x.logprob, x.old)]
        assert _checked(lambda e, a, b, m=x.mask: kl.importance_weighted(e, a, b, mask=m), *columns)


@pytest.mark.parametrize("kind", ["absolute_plus", "k1_plus", "k3_plus"])
def test_slopes_of_straight_through_kinds(kind: str, drawn: list[Draw]) -> None:
    for x in drawn[:200]:
        leaf = x.logprob.nan_to_num().requires_grad_()
        (slope,) = torch.autograd.grad(getattr(kl, kind)(leaf, x.ref, mask=x.mask).sum(), leaf)
        expected = tokens.kl("k1", x.logprob.tolist(), x.ref.tolist(), x.mask.tolist())
        assert torch.allclose(slope, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)
