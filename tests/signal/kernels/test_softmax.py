"""The blocked softmax is the formula of ``signal.logprob``, in value and gradient; test_logprob.py has the edges."""

import pytest
import torch

from rl_sentinel.signal import logprob
from rl_sentinel.signal.kernels import sizes


@pytest.mark.parametrize("block", [1, 20, 10**6])
@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_equal_to_the_formula(kind: torch.dtype, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "LOGITS_CPU", block)
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 5, 9, generator=draw, dtype=torch.float64).to(kind)
    token, mask = torch.randint(9, (2, 5), generator=draw), torch.rand(2, 5, generator=draw) < 0.7
    results = []
    for large in (10**9, 0):
        monkeypatch.setattr(sizes, "LOGITS", large)
        leaf = logits.clone().requires_grad_()
        both = logprob.logprobs_and_entropy(leaf, token, mask=mask, temperature=0.7)
        results.append((*both, torch.autograd.grad(both[0].sum() + both[1].square().sum(), leaf)[0]))
    torch.testing.assert_close(results[1], results[0])
