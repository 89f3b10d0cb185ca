"""Expressions of arguments: containers are rebuilt, functions of packages are found."""

from pathlib import Path

import pytest

from rl_sentinel.adapters.kit.evaluation import StepResults, evaluate
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.call import Call, Use

NOWHERE = Target(Path("/nowhere"))


def test_an_expression() -> None:
    """Calls, places and containers of both."""
    expression = {"a": [Call("math.hypot", (Use("x"), 4))], "b": (Use("x"), "plain"), "c": [1.0]}
    left = StepResults()
    left["x"] = 3
    assert evaluate(NOWHERE, expression, left) == {"a": [5.0], "b": (3, "plain"), "c": [1.0]}


def test_a_function_that_does_not_exist() -> None:
    """Is named."""
    with pytest.raises(ModuleNotFoundError, match=r"^no.such.thing cannot be imported, expected a function of"):
        evaluate(NOWHERE, Call("no.such.thing"), StepResults())
