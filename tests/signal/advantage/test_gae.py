"""GAE against the recursion, token by token."""

import pytest
import torch

from rl_sentinel.signal.advantage.gae import advantages


def _plain(reward: list[float], value: list[float], mask: list[int], discount: float, decay: float) -> list[float]:
    """The recursion from the end, over trained tokens."""
    found, later, after = [0.0] * len(mask), 0.0, 0.0
    for t in reversed(range(len(mask))):
        if mask[t]:
            later = reward[t] + discount * after - value[t] + discount * decay * later
            found[t], after = later, value[t]
    return found


@pytest.mark.parametrize(("discount", "decay"), [(1.0, 1.0), (0.99, 0.95), (1.0, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("fill", [1.0, 0.6])
def test_recursion(discount: float, decay: float, fill: float) -> None:
    for width in (1, 31, 32, 33, 100):
        draw = torch.Generator().manual_seed(width)
        mask = torch.rand(3, width, generator=draw) < fill
        reward, value = torch.randn(2, 3, width, generator=draw, dtype=torch.float64)
        expected = [
            _plain(r, v, m, discount, decay)
            for r, v, m in zip(reward.tolist(), value.tolist(), mask.int().tolist(), strict=True)
        ]
        reward[~mask], value[~mask] = torch.nan, torch.inf
        found = advantages(reward, value, mask=mask, discount=discount, decay=decay)
        assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), atol=1e-12)


def test_long_responses_do_not_drift() -> None:
    """With both factors 1 the first token's advantage is the sum of 20,000 rewards, to one block's rounding."""
    reward = torch.full((1, 20_000), 0.1)
    found = advantages(reward, torch.zeros_like(reward), mask=torch.ones(1, 20_000).bool(), discount=1.0, decay=1.0)
    assert found[0, 0].item() == pytest.approx(2000.0, rel=32 * 2**-23)  # added one by one in float32 it is 9e-5 off


@pytest.mark.parametrize("name", ["discount", "decay"])
def test_factors_lie_between_0_and_1(name: str) -> None:
    zeros, numbers = torch.zeros(1, 2), {"discount": 1.0, "decay": 1.0} | {name: 1.5}
    with pytest.raises(ValueError, match=rf"^{name} is 1\.5, expected a number of 0 or more and at most 1$"):
        advantages(zeros, zeros, mask=torch.ones(1, 2).bool(), **numbers)
