"""What counts as a number, a word and a function."""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from rl_sentinel.core.argument_checks import by_name, function, is_number, number, one_of, takes
from rl_sentinel.core.errors import InputError


@pytest.mark.parametrize("value", [0, -7, 2**63 - 1, 0.5, torch.nan, np.int8(3), np.float16(1), torch.tensor(2)])
def test_numbers(value: object) -> None:
    assert is_number(value)
    number("share", value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "1",
        True,
        np.bool_(1),
        torch.tensor(1) > 0,
        2**63,
        1j,
        torch.tensor(1j),
        torch.ones(1),
        np.ones(1),
        Decimal(1),
        torch.tensor(1.0, requires_grad=True),
        torch.tensor(1.0, device="meta"),
    ],
)
def test_what_is_no_number(value: object) -> None:
    assert not is_number(value)
    more = r"( whose absolute value is below 2\*\*63| without a gradient: detach it)?"
    with pytest.raises(InputError, match=rf"^share is .*, expected a number{more}$"):
        number("share", value)


@pytest.mark.parametrize("value", [None, "min", ["sum"], {"sum"}, np.array(["sum", "mean"])])
def test_words(value: object) -> None:
    one_of("over", "sum", ("sum", "mean"))
    with pytest.raises(InputError, match=r"^over is .*, expected one of sum, mean$"):
        one_of("over", value, ("sum", "mean"))


@pytest.mark.parametrize("value", [None, 3, "max", [max], int])
def test_functions(value: object) -> None:
    own: list[Callable[..., Any]] = [is_number, partial(one_of, "over"), torch.nn.Identity()]
    for one in own:
        function("estimator", one)
    hint = ": write a Python function that calls it" if callable(value) else ""
    with pytest.raises(InputError, match=rf"^estimator is .*, expected a function whose parameters can be read{hint}$"):
        function("estimator", value)


def test_partial_function_with_a_wrong_argument() -> None:
    with pytest.raises(InputError, match=r"can be read: got an unexpected keyword argument 'ceiling'$"):
        function("estimator", partial(one_of, ceiling=2.0))  # type: ignore[call-arg]  # the mistake


def test_one_line_whatever_was_given() -> None:
    with pytest.raises(InputError) as told:
        number("share", torch.ones(30, 30))
    assert "\n" not in str(told.value)


def test_how_a_function_is_called() -> None:
    takes("bounds[0]", partial(lambda weight, *, mask, high: (weight, mask, high), high=2.0), 1, "mask")
    with pytest.raises(
        InputError, match=r"^weight cannot be called, expected a function f\(column, column, mask=...\): "
    ):
        takes("weight", lambda old: old, 2, "mask")
    by_name("estimator", lambda reward, *, live: (reward, live))
    with pytest.raises(
        InputError, match=r"^estimator takes reward by position only, expected a parameter that has a name"
    ):
        by_name("estimator", lambda reward, /, live: (reward, live))
