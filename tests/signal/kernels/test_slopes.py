"""Each loss by its kernel is the loss by its formula: value and gradient, every aggregation, padded and packed."""

from dataclasses import replace
from typing import get_args

import pytest
import torch
from batch_formula_pairs import aggregation_of
from draws import cases
from formula_pairs import MODES
from loss_formulas import LOSSES, loss_of

from rl_sentinel.signal.kernels import sizes, slopes
from rl_sentinel.signal.reduce import Aggregation, Mode
from rl_sentinel.signal.segments import Segments, packed

KERNELS = [n for n in vars(slopes) if n in LOSSES]


def test_every_kernel_is_that_of_a_loss() -> None:
    public = {n for n, f in vars(slopes).items() if callable(f) and getattr(f, "__module__", "") == slopes.__name__}
    assert public - {"gspo_columns"} == set(KERNELS)


@pytest.mark.parametrize("size", [1, 10, 10_000])
@pytest.mark.parametrize("name", KERNELS)
def test_equal_to_the_formula(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "BLOCK", size)
    for i, x in enumerate(cases(60, seed=9)):
        by, found = aggregation_of(MODES[i % len(MODES)], x), []
        for large in (10**9, 0):
            monkeypatch.setattr(sizes, "LOSS", large)
            leaf = x.logprob.clone().requires_grad_()
            value = loss_of(name, x, leaf, by)
            found.append((value.detach(), torch.autograd.grad(value, leaf)[0].nan_to_num()))
        torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_equal_where_nothing_has_moved(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratios of 1, advantages of -1, 0 and 1."""
    for x in cases(20, seed=3):
        own = replace(x, old=x.logprob, advantage=x.advantage.sign())
        found = []
        for large in (10**9, 0):
            monkeypatch.setattr(sizes, "LOSS", large)
            leaf = own.logprob.clone().requires_grad_()
            value = loss_of(name, own, leaf, Aggregation("token-mean", 3.0))
            found.append((value.detach(), torch.autograd.grad(value, leaf)[0].nan_to_num()))
        torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", get_args(Mode))
def test_packed_tokens(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "LOSS", 0)
    monkeypatch.setattr(sizes, "BLOCK", 2)
    for x in cases(20, seed=4):
        counts = torch.full((len(x.mask),), x.mask.shape[1])
        by = Aggregation(mode, 3.0, counts if mode == "prompt-mean" else None)
        flat = replace(
            x, **{n: packed(getattr(x, n), length=x.length) for n in ("logprob", "old", "advantage", "value")}
        )
        stored = Segments(packed(x.mask, length=x.length), x.length)
        found = loss_of("ppo", replace(flat, mask=stored), flat.logprob, by)  # type: ignore[arg-type]  # packed
        torch.testing.assert_close(found, loss_of("ppo", x, x.logprob, by))
