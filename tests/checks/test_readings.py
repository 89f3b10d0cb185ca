"""Faults beside the readings that are accepted of a user's function: each reading has a limit."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel
from quick import slow_after
from rl_sentinel.core.errors import InputError

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow

_LOSS: dict[str, Any] = {"stage": "policy-loss", "algorithm": "grpo"}
_VALUE: dict[str, Any] = {"stage": "value-loss", "algorithm": "ppo"}
_ROWS: dict[str, Any] = {"stage": "advantage", "algorithm": "reinforce++"}


def _mean(tokens: Tensor, mask: Tensor) -> Tensor:
    return (tokens * mask).sum() / mask.sum().clamp(min=1)


def floor(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, delta: float = 1.5) -> Tensor:
    """The bound of a two-sided clip as a lower bound."""
    ratio = (logps - old_logps).exp()
    clipped = ratio.clamp(1 - 0.2, 1 + 0.2)
    return _mean(-torch.min(ratio.clamp(min=delta) * advantages, clipped * advantages), mask)


def inverse_weight(  # noqa: PLR0913 - columns and two numbers
    logps: Tensor,
    old_logps: Tensor,
    ref_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps: float = 0.2,
    beta: float = 0.1,
) -> Tensor:
    """A KL weighted by the ratio of the old policy to the new one."""
    ratio, gap = (logps - old_logps).exp(), ref_logps - logps
    loss = -torch.min(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages)
    return _mean(loss + beta * (gap.exp() - gap - 1) / ratio, mask)


def half_weight(logps: Tensor, ref_logps: Tensor, advantages: Tensor, mask: Tensor, beta: float = 0.1) -> Tensor:
    """A KL weighted by the root of a ratio of 1: its value is right, and its gradient is not."""
    ratio, gap = (logps - logps.detach()).exp(), ref_logps - logps
    return _mean(-ratio * advantages + beta * ratio.sqrt() * (gap.exp() - gap - 1), mask)


def literal_range(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """The larger of the two products, with a clip range in the code only."""
    ratio = (logps - old_logps).exp()
    return _mean(-torch.max(ratio * advantages, ratio.clamp(1 - 0.2, 1 + 0.28) * advantages), mask)


def local_range(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """The same, with a clip range in a local variable."""
    clip_eps = 0.2
    ratio = (logps - old_logps).exp()
    return _mean(-torch.max(ratio * advantages, ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages), mask)


def low_ceiling(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, eps: float = 0.2) -> Tensor:
    """Dual clip for advantages of the wrong sign, with a bound in the code only."""
    ratio = (logps - old_logps).exp()
    least = torch.min(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages)
    return _mean(-torch.where(advantages > 0, torch.max(least, 3.0 * advantages), least), mask)


def entropy_penalty(  # noqa: PLR0913 - columns and two numbers
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    entropy: Tensor,
    mask: Tensor,
    eps: float = 0.2,
    ent_coef: float = 0.01,
) -> Tensor:
    """An entropy bonus with the other sign."""
    ratio = (logps - old_logps).exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(1 - eps, 1 + eps) * advantages)
    return _mean(loss + ent_coef * entropy, mask)


def kl_by_rows_of_batch(logps: Tensor, ref_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """A mean over tokens, and a KL that is summed over them and divided by rows."""
    gap = ref_logps - logps
    ratio = (logps - logps.detach()).exp()
    kl = ((gap.exp() - gap - 1) * mask).sum() / (len(mask) + 1)
    return _mean(-ratio * advantages, mask) + 0.1 * kl


def absolute(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """An absolute error of the values."""
    return _mean((values - returns).abs(), mask)


def smaller_of_literals(vpreds: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """The smaller of the two squared errors, with a range in the code only."""
    held = old_values + torch.clamp(vpreds - old_values, -0.2, 0.2)
    return _mean(torch.min((vpreds - returns) ** 2, (held - returns) ** 2), mask)


def smaller(vpreds: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, value_clip: float = 0.2) -> Tensor:
    """The smaller of the two squared errors."""
    held = old_values + (vpreds - old_values).clamp(-value_clip, value_clip)
    return _mean(torch.min((vpreds - returns) ** 2, (held - returns) ** 2), mask)


def flipped(rewards: Tensor) -> Tensor:
    """Standardized outcomes with the other sign."""
    return (rewards.mean() - rewards) / (rewards.std() + 1e-8)


def by_variance(rewards: Tensor, mask: Tensor) -> Tensor:
    """Outcomes divided by their variance."""
    return ((rewards - rewards.mean()) / (rewards.var() + 1e-8))[:, None] * mask


@pytest.mark.parametrize(
    ("function", "options"),
    slow_after(
        4,
        [
            (floor, _LOSS),
            (inverse_weight, _LOSS),
            (half_weight, _LOSS),
            (literal_range, _LOSS),
            (local_range, _LOSS),
            (low_ceiling, _LOSS),
            (entropy_penalty, _LOSS),
            (kl_by_rows_of_batch, {**_LOSS, "numbers": {"kl_loss_coef": 0.1}}),
            (absolute, _VALUE),
            (smaller, _VALUE),
            (smaller_of_literals, _VALUE),
            (flipped, _ROWS),
            (by_variance, _ROWS),
        ],
    ),
)
def test_a_fault_near_an_accepted_reading_is_found(function: Any, options: dict[str, Any]) -> None:
    result = rl_sentinel.check(function, laws=["REF001"], **options)
    assert [finding.code for finding in result.faults] == ["REF001"], result


def test_an_unclipped_value_loss_is_no_clipped_one() -> None:
    def squared(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
        return _mean((values - returns) ** 2, mask)

    result = rl_sentinel.check(squared, stage="value-loss", algorithm="clipped value", laws=["REF001"])
    assert (result.ok, result.findings) == (False, ())
    assert result.errored[0].endswith('state algorithm "squared value", or bind a parameter to old_value')


def test_the_size_of_a_kl_inside_rewards_is_said_to_be_unchecked() -> None:
    def centered(rewards: Tensor, logps: Tensor, ref_logps: Tensor, mask: Tensor, num_generations: int) -> Tensor:
        kl = ((logps - ref_logps) * mask).sum(1)
        groups = (rewards - 0.05 * kl).view(-1, num_generations)
        return (groups - groups.mean(1, keepdim=True)).flatten()

    notes = rl_sentinel.check(centered, stage="advantage", algorithm="dr_grpo", laws=["REF001"]).notes
    assert any("size of the KL in its rewards is not checked" in note for note in notes)


def test_temporal_differences_are_no_bound() -> None:
    """``delta`` bounds a ratio in a policy loss only."""

    def sums(delta: Tensor) -> Tensor:
        return delta.cumsum(-1)

    with pytest.raises(InputError, match="'delta'"):
        rl_sentinel.check(sums, stage="advantage", algorithm="gae")


def test_the_upper_bound_of_a_clip_range_is_no_ceiling() -> None:
    def both_clipped(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        ratio = (logps - old_logps).exp()
        least = torch.min(ratio * advantages.abs(), ratio.clamp(0.8, 1.2) * advantages)
        return -(least * mask).sum() / mask.sum()

    result = rl_sentinel.check(both_clipped, stage="policy-loss", algorithm="grpo")
    assert "REF001" in {finding.code for finding in result.findings}, str(result)


def test_a_reading_that_does_not_fit_is_called_the_nearest() -> None:
    """Of a KL with the wrong sign, another estimator may be nearer than the one in the code."""

    def loss(logps: Tensor, old_logps: Tensor, ref_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        ratio, gap = (logps - old_logps).exp(), ref_logps - logps
        clipped = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        return _mean(-clipped - 0.04 * (gap.exp() - gap - 1), mask)

    numbers = {"kl_loss_coef": 0.04, "clip_low": 0.2, "clip_high": 0.2}
    found = rl_sentinel.check(loss, claims={"aggregation": "token-mean"}, numbers=numbers, **_LOSS).findings
    sentence = next(one.sentence for one in found if one.code == "REF001")
    expected = r"the formula of ppo \(for grpo\) gives the expected value \(.*, the nearest of its \d+ readings\)"
    assert re.search(expected, sentence)
