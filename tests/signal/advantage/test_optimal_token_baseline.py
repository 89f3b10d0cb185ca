"""The optimal token baseline, by hand."""

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.errors import InputError
from rl_sentinel.formulas.temporal import TEMPORAL
from rl_sentinel.signal.advantage.optimal_token_baseline import advantages

GROUP = torch.tensor([0, 0])


def test_weights_by_hand() -> None:
    """Of squared lengths 0.5 and 1.5 the second response draws the baseline three times as much."""
    reward = torch.tensor([[4.0], [0.0]])
    chance, squares = torch.tensor([[0.5], [0.25]]), torch.tensor([[0.5], [1.0]])
    found = advantages(reward, chance.log(), squares, mask=torch.ones(2, 1).bool(), group=GROUP)
    torch.testing.assert_close(found, torch.tensor([[3.0], [-1.0]]))


def test_weights_add_up_along_the_response() -> None:
    """At the second token weights are 0.5 + 0.5 and 1.5 + 0.5; rewards to go there 4 and 0."""
    reward = torch.tensor([[2.0, 4.0], [0.0, 0.0]])
    chance, squares = torch.tensor([[0.5, 0.5], [0.25, 0.5]]), torch.tensor([[0.5, 0.5], [1.0, 0.5]])
    found = advantages(reward, chance.log(), squares, mask=torch.ones(2, 2).bool(), group=GROUP)
    torch.testing.assert_close(found, torch.tensor([[4.5, 8 / 3], [-1.5, -4 / 3]]))


def test_the_tail_of_the_longest_has_no_baseline() -> None:
    reward = torch.tensor([[0.0, 3.0], [1.0, torch.nan], [0.0, 5.0]])
    even = torch.full((3, 2), 0.5)
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    found = advantages(reward, even.log(), even, mask=mask, group=torch.tensor([0, 0, 9]))
    torch.testing.assert_close(found, torch.tensor([[1.0, 3.0], [-1.0, 0.0], [5.0, 5.0]]))


def test_trained_tokens_are_counted_not_positions() -> None:
    even, full = torch.full((2, 3), 0.5), torch.ones(2, 2).bool()
    plain = advantages(torch.tensor([[0.0, 3.0], [1.0, 0.0]]), even[:, :2].log(), even[:, :2], mask=full, group=GROUP)
    gap = torch.tensor([[True, False, True], [True, True, False]])
    reward = torch.tensor([[0.0, torch.nan, 3.0], [1.0, 0.0, torch.inf]])
    found = advantages(reward, even.log().masked_fill(~gap, torch.nan), even, mask=gap, group=GROUP)
    torch.testing.assert_close(found[0, [0, 2]], plain[0])
    torch.testing.assert_close(found[1, :2], plain[1])
    assert found[~gap].tolist() == [0.0, 0.0]


def test_equal_returns_and_certain_tokens() -> None:
    """Equal rewards give exactly 0; where every gradient is 0 the plain mean is taken."""
    reward = torch.full((2, 1), 0.1)
    chance, squares = torch.tensor([[0.5], [0.3]]), torch.tensor([[0.5], [0.4]])
    mask = torch.ones(2, 1).bool()
    assert advantages(reward, chance.log(), squares, mask=mask, group=GROUP).tolist() == [[0.0], [0.0]]
    sure, ones = torch.zeros(2, 1), torch.ones(2, 1)
    found = advantages(torch.tensor([[1.0], [0.0]]), sure, ones, mask=mask, group=GROUP)
    assert found.tolist() == [[0.5], [-0.5]]


@pytest.mark.parametrize(("dtype", "step"), [(torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)])
def test_narrow_numbers_are_added_wide(dtype: torch.dtype, step: float) -> None:
    """The formula of the same numbers, up to one rounding of the result, over 20 tokens of 40 responses."""
    chance = torch.Generator().manual_seed(0)
    reward, own, squared = (torch.rand(40, 20, generator=chance).to(dtype) for _ in range(3))
    squared = torch.maximum(squared, own)  # at least the square of the sampled token's own probability
    mask, group = torch.rand(40, 20, generator=chance) < 0.9, torch.zeros(40).long()
    found = advantages(reward, own.log(), squared, mask=mask, group=group)
    batch = batch_of(mask, token_reward=reward, logprob=own.log(), pi_squared=squared, group=group)
    (formula,) = TEMPORAL["optimal token baseline"](batch, {}).values()
    assert found.dtype == dtype
    expected = torch.tensor(formula, dtype=torch.float64)
    torch.testing.assert_close(found.double(), expected, rtol=step, atol=1e-4)


def test_a_sum_of_squared_probabilities_above_1_is_refused() -> None:
    mask, half = torch.ones(1, 1).bool(), torch.full((1, 1), 0.5)
    with pytest.raises(InputError, match=r"^pi_squared\[0, 0\] is 1.5, expected from 0 to 1"):
        advantages(half, half.log(), half + 1, mask=mask, group=torch.zeros(1).long())
