"""The policy: weights from the seed, and a frozen reference."""

import pytest
import torch

from rl_sentinel.train.model.policy import Policy, init_policy
from training import recipe


def test_weights_depend_on_the_seed() -> None:
    """The warm start's seed, if there is one, so that runs share the warm start."""
    first, again, other = (init_policy(recipe(seed=s)).model.state_dict() for s in (3, 3, 4))
    name = "lm_head.weight"
    assert torch.equal(first[name], again[name])
    assert not torch.equal(first[name], other[name])
    warm = {"steps": 1, "seed": 9}
    one, two = (init_policy(recipe(seed=s, warm=warm)).model.state_dict() for s in (3, 4))
    assert torch.equal(one[name], two[name])


@pytest.mark.on_cpu
def test_reference_is_a_copy() -> None:
    policy = init_policy(recipe())
    reference = policy.frozen_copy()
    token = torch.tensor([[2, 3]])
    before = reference(token)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(1.0)
    assert torch.equal(reference(token), before)
    assert not torch.equal(policy(token), before)
    assert not any(w.requires_grad for w in reference.model.parameters())


@pytest.mark.on_cpu
def test_bf16_rounds_only_the_model() -> None:
    """Logits differ slightly from float32; weights and gradients stay in float32."""
    wide = init_policy(recipe(policy={"hidden": 16, "layers": 1, "heads": 2, "inner": 16, "positions": 32}))
    narrow = Policy(wide.model, wide.tokenizer, precision="bf16")
    token = torch.tensor([[2, 3, 9, 4]])
    logits, exact = narrow(token), wide(token)
    assert (logits.dtype, exact.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(logits.float(), exact, atol=2e-2 * float(exact.detach().abs().max()), rtol=0)
    assert not torch.equal(logits.float(), exact)
    logits.float().sum().backward()  # type: ignore[no-untyped-call]  # torch's own
    assert {w.grad.dtype for w in wide.model.parameters() if w.grad is not None} == {torch.float32}
    assert torch.equal(narrow.frozen_copy()(token), logits)
