"""The audit of a function of this process."""

import re
from functools import partial
from types import FunctionType
from typing import Any, cast

import pytest
from torch import Tensor

from rl_sentinel.adapters.user_function import Statement
from rl_sentinel.audit.function_check import audit_function, why_no_replay
from rl_sentinel.core.errors import InputError


def test_a_lambda_is_audited_and_cannot_be_replayed() -> None:
    function = lambda rewards: rewards * 2  # noqa: E731 - a lambda is the subject
    audit = audit_function(function, Statement(stage="advantage"), laws=("SHF001", "MSK003"), jobs=1)
    assert audit.verdicts
    assert "cannot be imported by name" in why_no_replay(function, {})
    assert why_no_replay(why_no_replay, {}) == ""
    script = FunctionType(why_no_replay.__code__, {"__name__": "__main__"})
    assert "move it into a module" in why_no_replay(script, {})
    assert "bind has a function" in why_no_replay(why_no_replay, {"x": why_no_replay})


class Unreadable:
    """A callable that has no attribute, not even as an AttributeError."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"no\n{name}")

    def __call__(self, rewards: Tensor) -> Tensor:
        return rewards


def scaled(rewards: Tensor, scale: float) -> Tensor:
    return rewards * scale


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            Unreadable(),
            (
                "function is an object of type Unreadable whose attributes cannot be read (RuntimeError: no "
                "__wrapped__), expected a Python function: let its __getattr__ raise AttributeError, or pass a lambda "
                "that calls it"
            ),
        ),
        (
            partial(cast("Any", scaled), factor=3),
            (
                "function is a partial of scaled with factor=3, and scaled does not take all of them, expected "
                "arguments for its parameters (rewards, scale): remove or rename those that do not fit"
            ),
        ),
        (
            partial(cast("Any", scaled), 1, 2, 3),
            (
                "function is a partial of scaled with 1, 2, 3, and scaled does not take all of them, expected "
                "arguments for its parameters (rewards, scale): remove or rename those that do not fit"
            ),
        ),
    ],
    ids=["attributes", "keyword", "positional"],
)
def test_callables_whose_parameters_cannot_be_read(function: Any, words: str) -> None:
    with pytest.raises(InputError) as error:
        audit_function(function, Statement(stage="advantage"))
    assert str(error.value) == words


class _Loss:
    """A function with settings."""

    def __call__(self, reward: Tensor) -> Tensor:
        """Return the rewards."""
        return reward


_LAMBDA = ": pass a lambda that calls it"


@pytest.mark.parametrize(
    ("function", "fix"),
    [(3, ""), (len, _LAMBDA), (int, _LAMBDA), (_Loss, ": pass an object of this class, such as _Loss()")],
)
def test_what_is_no_python_function(function: object, fix: str) -> None:
    fix = re.escape(fix)
    with pytest.raises(InputError, match=f"expected a Python function, method or lambda, or a partial of one{fix}$"):
        audit_function(function, Statement(stage="advantage"))  # type: ignore[arg-type]


class _Trainer:
    """An object that this module holds."""

    def loss(self) -> None:
        """Compute nothing."""


TRAINER = _Trainer()


def test_a_method_of_an_object_in_a_module_can_be_replayed_from_the_command_line() -> None:
    assert f"rl-sentinel audit {__name__}:TRAINER.loss writes" in why_no_replay(TRAINER.loss, {})
    assert why_no_replay(_Trainer().loss, {}).endswith("cannot be imported by name")
