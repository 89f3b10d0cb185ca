"""The policy: weights from the seed, and a reference that stays."""

import torch

from rl_sentinel.train.model.policy import Policy, from_scratch
from training import recipe


def test_weights_come_from_the_seed() -> None:
    """The recipe's own, or that of the warm start, which several seeds of a recipe share."""
    first, again, other = (from_scratch(recipe(seed=s)).model.state_dict() for s in (3, 3, 4))
    name = "lm_head.weight"
    assert torch.equal(first[name], again[name])
    assert not torch.equal(first[name], other[name])
    warm = {"steps": 1, "seed": 9}
    one, two = (from_scratch(recipe(seed=s, warm=warm)).model.state_dict() for s in (3, 4))
    assert torch.equal(one[name], two[name])


def test_reference_stays() -> None:
    """It has weights of its own, which take no gradient."""
    policy = from_scratch(recipe())
    reference = policy.copied()
    token = torch.tensor([[2, 3]])
    before = reference(token)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(1.0)
    assert torch.equal(reference(token), before)
    assert not torch.equal(policy(token), before)
    assert not any(w.requires_grad for w in reference.model.parameters())


def test_bf16_rounds_the_model_alone() -> None:
    """Logits near those in float32 and not equal; weights and their gradients in float32; a reference alike."""
    wide = from_scratch(recipe(policy={"hidden": 16, "layers": 1, "heads": 2, "inner": 16, "positions": 32}))
    narrow = Policy(wide.model, wide.text, precision="bf16")
    token = torch.tensor([[2, 3, 9, 4]])
    found, exact = narrow(token), wide(token)
    assert (found.dtype, exact.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(found.float(), exact, atol=2e-2 * float(exact.detach().abs().max()), rtol=0)
    assert not torch.equal(found.float(), exact)
    found.float().sum().backward()  # type: ignore[no-untyped-call]  # torch's own
    assert {w.grad.dtype for w in wide.model.parameters() if w.grad is not None} == {torch.float32}
    assert torch.equal(narrow.copied()(token), found)
