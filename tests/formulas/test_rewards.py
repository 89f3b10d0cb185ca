"""The formulas of rewards, by hand."""

import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.rewards import REWARDS

MASK = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]]).bool()
BATCH = batch_of(
    MASK,
    reward=torch.tensor([3.0, -1.0, 50.0, 1.0]),
    length=torch.tensor([3, 1, 2, 2]),
    scored=torch.tensor([False, True, True, True]),
    group=torch.tensor([5, 5, 5, 2]),
)
BY: Settings = {"mean": "batch", "deviation": "none", "leave_one_out": False, "biased": False, "epsilon": 0.0}


def _found(name: str, settings: Settings) -> list[float]:
    found: list[float] = REWARDS[name](BATCH, settings).tolist()
    return found


def test_by_hand() -> None:
    """Each on rows of which one is dead and one is void."""
    assert _found("rescaled", {"bias": 1.0, "scale": 2.0}) == [8.0, 0.0, 0.0, 4.0]
    assert _found("clipped", {"least": 0.0, "most": 2.0}) == [2.0, 0.0, 0.0, 1.0]
    assert _found("suppressed", {}) == [0.0, -1.0, 0.0, 1.0]
    assert _found("overlong penalty", {"limit": 2, "buffer": 2, "factor": 3.0}) == [-3.0, -1.5, 0.0, -3.0]


def test_normalized() -> None:
    """The mean of live rows is 1, of the group of two likewise; void first, the mean is 0."""
    assert _found("normalized", BY) == [2.0, -2.0, 0.0, 0.0]
    assert _found("normalized", {**BY, "suppress": True}) == [0.0, -1.0, 0.0, 1.0]
    assert _found("normalized", {**BY, "mean": "group", "leave_one_out": True}) == [4.0, -4.0, 0.0, 0.0]
    assert _found("normalized", {**BY, "deviation": "batch"}) == [1.0, -1.0, 0.0, 0.0]
    assert _found("normalized", {**BY, "deviation": "group", "biased": True}) == [1.0, -1.0, 0.0, 0.0]


def test_prompts_but_those_of_equal_live_rewards() -> None:
    """A rejected response does not make a prompt varied, and a lone one is kept."""
    assert _found("prompts but those of equal live rewards", {}) == [1.0, 1.0, 0.0, 1.0]
    even = batch_of(MASK, reward=torch.tensor([3.0, 3.0, 50.0, 1.0]), group=torch.tensor([5, 5, 5, 2]))
    assert REWARDS["prompts but those of equal live rewards"](even, {}).tolist() == [0.0, 0.0, 0.0, 1.0]
