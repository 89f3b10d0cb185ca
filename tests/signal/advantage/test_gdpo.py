"""GDPO, by hand."""

import pytest
import torch

from rl_sentinel.signal.advantage.gdpo import advantages

PARTS = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 8.0], [0.0, 0.0]])
GROUP, LIVE = torch.tensor([3, 3, 8, 8]), torch.ones(4).bool()


def test_by_hand() -> None:
    """Each pair gives 1 / sqrt 2 and its negative per part, whatever the part's size; then over the batch."""
    found = advantages(PARTS, group=GROUP, live=LIVE, weight=torch.tensor([1.0, 1.0]), epsilon=0.0)
    half = 0.5**0.5
    whole = torch.tensor([half, -half, 2 * half, -2 * half])
    torch.testing.assert_close(found, whole / whole.std())


def test_weights() -> None:
    """A part of weight 0 does not count: then all pairs are alike."""
    found = advantages(PARTS, group=GROUP, live=LIVE, weight=torch.tensor([3.0, 0.0]), epsilon=0.0)
    torch.testing.assert_close(found, torch.tensor([1.0, -1.0, 1.0, -1.0]) * 0.75**0.5)


def test_dead_rows_and_constant_parts() -> None:
    """A dead row is not seen and gets 0; constant parts give exactly 0."""
    parts = torch.cat([PARTS, torch.tensor([[torch.nan, 50.0]])])
    group, live = torch.cat([GROUP, torch.tensor([3])]), torch.tensor([True] * 4 + [False])
    found = advantages(parts, group=group, live=live, weight=torch.ones(2), epsilon=0.0)
    assert torch.equal(found[:4], advantages(PARTS, group=GROUP, live=LIVE, weight=torch.ones(2), epsilon=0.0))
    assert found[4] == 0
    same = torch.full((4, 2), 0.1)
    assert advantages(same, group=GROUP, live=LIVE, weight=torch.ones(2), epsilon=0.0).tolist() == [0.0] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parts_that_cancel_give_nothing(dtype: torch.dtype) -> None:
    part = torch.tensor([0.1, 0.7, -0.3, 2.9], dtype=dtype)
    found = advantages(
        torch.stack([part, -3 * part], dim=1), group=GROUP, live=LIVE, weight=torch.ones(2, dtype=dtype), epsilon=0.0
    )
    assert found.tolist() == [0.0] * 4


def test_weights_of_wrong_number_are_named() -> None:
    with pytest.raises(ValueError, match=r"^weight has shape \[3\], expected \[2\], as in reward_parts$"):
        advantages(PARTS, group=GROUP, live=LIVE, weight=torch.ones(3), epsilon=0.0)
