"""Names are resolved to functions, and the recipe's parameters bound to them."""

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.advantage import gdpo
from rl_sentinel.train.config.name_resolution import bind_parameters, required_parameters


def test_columns_are_not_parameters_of_the_recipe() -> None:
    def halved(reward: float, *, factor: float = 0.5) -> float:
        return reward * factor

    assert bind_parameters("estimator", halved, {}, frozenset({"reward"}))(2.0) == 1.0
    with pytest.raises(SentinelError, match=r"estimator.reward is set, expected no value: the trainer passes"):
        bind_parameters("estimator", halved, {"reward": 1.0}, frozenset({"reward"}))


def test_variadic_parameters_are_ignored() -> None:
    def own(reward: float, k: int, **more: float) -> float:
        return reward * k

    assert bind_parameters("estimator", own, {"k": 2}, frozenset({"reward"}))(2.0) == 4.0
    assert required_parameters(own) == {"reward", "k"}
    with pytest.raises(SentinelError, match=r"^estimator.k is missing, expected an int: set it in the recipe$"):
        bind_parameters("estimator", own, {}, frozenset({"reward"}))
    with pytest.raises(SentinelError, match=r"^estimator.k is 1.5, expected an int$"):
        bind_parameters("estimator", own, {"k": 1.5}, frozenset({"reward"}))


def test_lists_of_numbers_become_tensors() -> None:
    columns = frozenset({"reward_parts", "group", "live"})
    bound = bind_parameters("estimator", gdpo.advantages, {"weight": (1, 0.5), "epsilon": 0.0}, columns)
    assert torch.equal(bound.keywords["weight"], torch.tensor([1.0, 0.5]))  # type: ignore[attr-defined]  # numbers bind_parameters in
    assert required_parameters(bound) == columns
