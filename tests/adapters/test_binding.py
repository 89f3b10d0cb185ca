"""Arguments by role: what a parameter is called decides what it is given."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from rl_sentinel.adapters.binding import bound, takes
from rl_sentinel.core.errors import Unbindable


def _estimator(token_level_rewards: int, eos_mask: int, *rest: int, index: int = 9, epsilon: float = 0.5) -> None: ...


def test_each_parameter_gets_its_role() -> None:
    """A default without a value stays, whatever collects the rest gets nothing, what nobody asks for is left."""
    assert bound(_estimator, {"token_rewards": 1, "mask": 2, "values": 3}) == {"token_level_rewards": 1, "eos_mask": 2}
    assert bound(_estimator, {"token_rewards": 1, "mask": 2, "group": 3})["index"] == 3


def test_a_name_goes_before_a_role() -> None:
    """And stands for what has none."""
    found = bound(_estimator, {"token_rewards": 1, "mask": 2}, extra={"epsilon": 0.25, "eos_mask": 7, "unknown": 0})
    assert found == {"token_level_rewards": 1, "eos_mask": 7, "epsilon": 0.25}


def test_what_is_lacking_is_named() -> None:
    """A known role without a value, and a name of which no role is known."""
    with pytest.raises(Unbindable, match=r"^_estimator wants 'eos_mask', for which no role is known$"):
        bound(_estimator, {"token_rewards": 1})


def test_a_wrapped_function_is_asked_itself() -> None:
    """Decorators hide its parameters."""

    def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def inner(*args: object, **more: object) -> object:
            return function(*args, **more)

        return inner

    assert bound(wrapping(_estimator), {"token_rewards": 1, "mask": 2}) == {"token_level_rewards": 1, "eos_mask": 2}
    assert takes(wrapping(_estimator), "group")
    assert not takes(_estimator, "values")
