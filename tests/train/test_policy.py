"""The policy: weights from the seed, and a reference that stays."""

import torch

from rl_sentinel.train.policy import from_scratch
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
