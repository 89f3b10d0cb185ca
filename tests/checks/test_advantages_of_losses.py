"""Losses that change their advantages, or take one per response in a layout with one per token."""

import pytest
import torch
from torch import Tensor

import rl_sentinel

CLIP_LOW, CLIP_HIGH = 3e-4, 4e-4


def sequence_ratio(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """GSPO with advantages repeated at each token."""
    count = mask.sum(1).clamp(min=1)
    ratio = (((logps - old_logps) * mask).sum(1) / count).exp().unsqueeze(1)
    gained = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH) * advantages)
    return -((gained * mask).sum(1) / count).mean()


def other_side(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """The larger of the two instead of the smaller."""
    count = mask.sum(1).clamp(min=1)
    ratio = (((logps - old_logps) * mask).sum(1) / count).exp().unsqueeze(1)
    gained = torch.maximum(ratio * advantages, ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH) * advantages)
    return -((gained * mask).sum(1) / count).mean()


def normalizing(
    new_logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, *, norm_adv: bool = True
) -> Tensor:
    """PPO over advantages that are normalized in the loss."""
    if norm_adv:
        trained = advantages[mask.bool()]
        advantages = (advantages - trained.mean()) / (trained.std() + 1e-8)
    ratio = (new_logps - old_logps).exp()
    lost = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH))
    return (lost * mask).sum() / mask.sum().clamp(min=1)


def blind(new_logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """PPO that lost its advantages, and so does not change with their scale."""
    ratio = (new_logps - old_logps).exp() + 0 * advantages
    lost = torch.maximum(-ratio, -ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH))
    return (lost * mask).sum() / mask.sum().clamp(min=1)


@pytest.mark.slow
def test_gspo_has_one_advantage_per_response() -> None:
    sound = rl_sentinel.check(sequence_ratio, stage="policy-loss", algorithm="gspo", budget=4)
    assert sound.ok, str(sound)
    wrong = rl_sentinel.check(other_side, stage="policy-loss", algorithm="gspo", budget=4)
    assert "REF001" in {f.code for f in wrong.findings}


def by_largest(new_logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """PPO over advantages that are divided by the largest of them."""
    centered = (advantages - (advantages * mask).sum() / mask.sum().clamp(min=1)) * mask
    return normalizing(new_logps, old_logps, centered / (centered.abs().max() + 1e-8), mask, norm_adv=False)


def gained(new_logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """The loss over normalized advantages with the other sign."""
    return -normalizing(new_logps, old_logps, advantages, mask)


@pytest.mark.slow
def test_a_loss_that_normalizes_is_compared_with_normalized_advantages() -> None:
    result = rl_sentinel.check(normalizing, stage="policy-loss", algorithm="ppo", budget=4)
    assert (result.ok, result.findings) == (True, ()), result
    assert [v.outcome for v in result.verdicts if v.law == "REF001"] == ["holds"]
    (note,) = [note for note in result.notes if "normalizes" in note]
    assert note.endswith("over trained tokens by deviation (n - 1), offset 1e-08 beside")
    off = rl_sentinel.check(normalizing, stage="policy-loss", algorithm="ppo", bind={"norm_adv": False}, budget=4)
    assert off.ok, str(off)


@pytest.mark.slow
def test_a_loss_that_fits_no_known_normalization_is_not_compared() -> None:
    result = rl_sentinel.check(by_largest, stage="policy-loss", algorithm="ppo", budget=4)
    assert not result.ok
    assert "the loss normalizes its advantages in an unknown way" in result.errored[0]


@pytest.mark.slow
def test_the_other_sign_of_normalized_advantages_is_found() -> None:
    result = rl_sentinel.check(gained, stage="policy-loss", algorithm="ppo", budget=4)
    assert "REF001" in {f.code for f in result.faults}


@pytest.mark.slow
def test_a_loss_without_advantages_is_compared() -> None:
    result = rl_sentinel.check(blind, stage="policy-loss", algorithm="ppo", budget=4)
    assert "REF001" in {f.code for f in result.findings}
