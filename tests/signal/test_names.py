"""What users import from ``rl_sentinel.signal`` itself, and what a wrong name says."""

import inspect
import pkgutil
from typing import Any

import pytest
import torch
from sound_arguments import PUBLIC, arguments

import rl_sentinel.signal
from rl_sentinel.core.errors import ArgumentNameError
from rl_sentinel.signal import advantage, loss


@pytest.mark.parametrize("name", rl_sentinel.signal.__all__)
def test_each_name_is_that_of_its_module(name: str) -> None:
    value = getattr(rl_sentinel.signal, name)
    assert callable(value)
    assert value.__module__.startswith("rl_sentinel.signal.")
    assert name in dir(rl_sentinel.signal)


def test_every_estimator_and_loss_has_a_name() -> None:
    names = {f"{info.name}_advantages" for info in pkgutil.iter_modules(advantage.__path__)}
    names |= {f"{info.name}_loss" for info in pkgutil.iter_modules(loss.__path__)}
    assert names <= set(rl_sentinel.signal.__all__)
    assert rl_sentinel.signal.grpo_advantages.__module__ == "rl_sentinel.signal.advantage.grpo"


def test_unknown_name_of_the_package_names_the_nearest() -> None:
    message = "module 'rl_sentinel.signal' has no 'grpo_advantage': the nearest is 'grpo_advantages'"
    with pytest.raises(AttributeError, match=f"^{message}$"):
        _ = rl_sentinel.signal.grpo_advantage
    with pytest.raises(AttributeError, match=r"^module 'rl_sentinel.signal' has no 'qqqq'$"):
        _ = rl_sentinel.signal.qqqq


@pytest.mark.parametrize("name", PUBLIC)
def test_misspelled_keyword_names_itself_and_the_nearest(name: str) -> None:
    given: dict[str, Any] = arguments(name)
    last = list(given)[-1]
    value = given.pop(last)
    with pytest.raises(
        ArgumentNameError, match=rf"\(\) has no parameter '{last}s', the nearest is '{last}': it takes "
    ):
        PUBLIC[name](**given, **{f"{last}s": value})


def test_missing_parameters_are_named_together() -> None:
    message = (
        "advantage.grpo.advantages() is called without live, standardize, epsilon: "
        "it takes reward, group, live, standardize, epsilon"
    )
    with pytest.raises(TypeError) as told:
        rl_sentinel.signal.grpo_advantages(torch.ones(2), group=torch.zeros(2).long())
    assert str(told.value) == message


def test_signatures_show_parameters_as_they_are_written() -> None:
    parameters = inspect.signature(rl_sentinel.signal.grpo_advantages).parameters
    assert list(parameters) == ["reward", "group", "live", "standardize", "epsilon"]
    assert parameters["epsilon"].default is inspect.Parameter.empty
