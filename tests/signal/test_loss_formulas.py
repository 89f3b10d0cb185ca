"""Losses and KL estimates equal their formulas in value and in gradient."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from batch_formula_pairs import aggregated_by, aggregation_of, denominator_of
from draws import Draw, cases
from formula_pairs import MODES
from loss_formulas import LOSSES, fitting, formula_of, loss_of
from torch import Tensor

from rl_sentinel.formulas.kl_terms import KL_LOSSES, importance_weighted
from rl_sentinel.formulas.value_losses import VALUE_LOSSES
from rl_sentinel.signal import kl, penalty, reduce, value


@pytest.fixture(scope="module")
def drawn() -> list[Draw]:
    return list(cases(250, seed=1))


def _slopes(total: Tensor, *leaves: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(total, leaves)) if total.requires_grad else [torch.zeros_like(x) for x in leaves]


def _assert_same(found: Tensor, expected: Tensor, leaves: tuple[Tensor, ...], mask: Tensor, case: int) -> None:
    """Value, and gradient at trained tokens; the gradient is exactly 0 elsewhere."""
    assert found.item() == pytest.approx(expected.item(), rel=1e-9, abs=1e-12), case
    for ours, formula in zip(_slopes(found, *leaves), _slopes(expected, *leaves), strict=True):
        assert not ours[~mask].any(), case
        torch.testing.assert_close(ours[mask], formula[mask], rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str, drawn: list[Draw]) -> None:
    for i, x in enumerate(fitting(name, one) for one in drawn):
        mode, leaf = MODES[i % len(MODES)], x.logprob.clone().requires_grad_()
        expected = aggregated_by(x, formula_of(name, x, leaf), mode, denominator_of(x))
        _assert_same(loss_of(name, x, leaf, aggregation_of(mode, x)), expected, (leaf,), x.mask, i)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "absolute", "absolute_plus", "k1_plus", "k3_plus"])
def test_kl_estimates(kind: str, drawn: list[Draw]) -> None:
    """As a loss, by the policy; kinds with a gradient of their own by the reference as well."""
    for i, x in enumerate(drawn[:200]):
        mode = MODES[i % len(MODES)]
        columns = (x.logprob,) if kind.endswith("plus") else (x.logprob, x.ref)
        leaves = tuple(c.clone().requires_grad_() for c in columns)
        own, ref = (*leaves, x.ref)[:2]
        found = penalty.as_loss(
            getattr(kl, kind)(own, ref, mask=x.mask), mask=x.mask, coefficient=0.3, aggregation=aggregation_of(mode, x)
        )
        readings = KL_LOSSES[f"{kind} as a loss"](x.batch(logprob=own, ref_logprob=ref), {"coefficient": 0.3})
        tokens = next(iter(readings.values()))  # the plain estimator; others are cut
        _assert_same(found, aggregated_by(x, tokens, mode, denominator_of(x)), leaves, x.mask, i)


def _weighted(x: Draw, estimate: Tensor, own: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
    found = kl.importance_weighted(estimate, own, old, mask=x.mask).sum()
    return found, importance_weighted(estimate, x.batch(logprob=own, old_logprob=old)).sum()


def _means(x: Draw, values: Tensor) -> tuple[Tensor, Tensor]:
    rows = [row[on].mean() for row, on in zip(values, x.mask, strict=True) if on.any()]
    return reduce.row_means(values, mask=x.mask).sum(), torch.stack([*rows, values.new_zeros(())]).sum()


def _values(x: Draw, held: Tensor) -> tuple[Tensor, Tensor]:
    by = reduce.Aggregation("token-sum", 3.0)
    found = value.value_loss(held, x.old, x.token_reward, mask=x.mask, value_clip=0.4, aggregation=by)
    formula = VALUE_LOSSES["clipped value"](x.batch(value=held), {"value_clip": 0.4})["half the square"]
    return found, aggregated_by(x, formula, "token-sum", 3.0)


@pytest.mark.parametrize(
    ("both", "columns"),
    [(_weighted, ("value", "logprob", "old")), (_means, ("value",)), (_values, ("value",))],
)
def test_gradients(both: Callable[..., Any], columns: tuple[str, ...], drawn: list[Draw]) -> None:
    for i, x in enumerate(drawn[:200]):
        leaves = tuple(getattr(x, n).clone().requires_grad_() for n in columns)
        found, expected = both(x, *leaves)
        _assert_same(found, expected, leaves, x.mask, i)
