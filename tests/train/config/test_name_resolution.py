"""Names become functions, numbers are filled in."""

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.advantage import gdpo
from rl_sentinel.train.config.name_resolution import filled, read_by


def test_parameter_that_is_no_number_is_not_asked_of_the_recipe() -> None:
    """It is what the trainer gives."""

    def halved(reward: float, *, factor: float = 0.5) -> float:
        return reward * factor

    assert filled("estimator", halved, {}, frozenset({"reward"}))(2.0) == 1.0
    with pytest.raises(SentinelError, match=r"estimator.reward is unknown, expected one of factor"):
        filled("estimator", halved, {"reward": 1.0}, frozenset({"reward"}))


def test_whatever_else_a_function_takes_is_not_asked_for() -> None:
    """Nothing is given for it; and a number is called as one says it."""

    def own(reward: float, k: int, **more: float) -> float:
        return reward * k

    assert filled("estimator", own, {"k": 2}, frozenset({"reward"}))(2.0) == 4.0
    assert read_by(own) == {"reward", "k"}
    with pytest.raises(SentinelError, match=r"^estimator.k is missing, expected an int: it has no default$"):
        filled("estimator", own, {}, frozenset({"reward"}))
    with pytest.raises(SentinelError, match=r"^estimator.k is 1.5, expected an int$"):
        filled("estimator", own, {"k": 1.5}, frozenset({"reward"}))


def test_several_numbers_become_a_tensor() -> None:
    """Which is no column: its entries are neither of responses nor of tokens."""
    columns = frozenset({"reward_parts", "group", "live"})
    found = filled("estimator", gdpo.advantages, {"weight": (1, 0.5), "epsilon": 0.0}, columns)
    assert torch.equal(found.keywords["weight"], torch.tensor([1.0, 0.5]))  # type: ignore[attr-defined]  # numbers filled in
    assert read_by(found) == columns
