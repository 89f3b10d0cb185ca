"""ReMax by hand."""

import pytest
import torch

from rl_sentinel.signal.advantage.remax import advantages


def test_by_hand() -> None:
    """The greedy reward is subtracted; a dead row has 0, whatever stands there."""
    reward, greedy = torch.tensor([1.0, 0.25, torch.nan]), torch.tensor([0.5, 1.0, 0.0])
    found = advantages(reward, greedy, live=torch.tensor([True, True, False]))
    assert found.tolist() == [0.5, -0.75, 0.0]


@pytest.mark.parametrize(
    ("reward", "greedy", "message"),
    [
        (torch.inf, 0.0, r"^reward\[1\] is inf, expected a finite number"),
        (0.0, torch.nan, r"^reward_baseline\[1\] is nan, expected a finite number"),
        (
            3e38,
            -3e38,
            r"^reward - reward_baseline\[1\] is inf, expected a finite number: the difference overflows the dtype",
        ),
    ],
)
def test_what_is_not_finite_is_refused(reward: float, greedy: float, message: str) -> None:
    both = torch.tensor([0.0, reward]), torch.tensor([0.0, greedy])
    with pytest.raises(ValueError, match=message):
        advantages(*both, live=torch.ones(2).bool())
    assert advantages(*both, live=torch.tensor([True, False])).tolist() == [0.0, 0.0]
