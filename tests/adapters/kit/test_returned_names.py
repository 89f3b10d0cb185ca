"""Which item of a result is the advantage, and which the returns, by the names in the code."""

from collections.abc import Callable
from typing import Any

import pytest

from rl_sentinel.adapters.kit.returned_names import returned_names


def usual(adv: Any, values: Any) -> Any:
    returns = adv + values
    return adv.detach(), returns


def exchanged(adv: Any, values: Any) -> Any:
    ret = adv + values
    return ret, adv


def summed(advantages: Any, values: Any, mask: Any) -> Any:
    return advantages * mask, advantages + values


def twice(adv: Any) -> Any:
    return adv, adv


def by_key(adv: Any, values: Any) -> Any:
    return {"returns": adv + values, "advantages": adv}


def by_call(adv: Any, values: Any) -> Any:
    return dict(advantages=adv, returns=adv + values)  # noqa: C408 - as users write it


def inner(adv: Any) -> Any:
    def pair(returns: Any) -> Any:
        return returns, adv

    return pair(adv)


def two_orders(adv: Any, returns: Any) -> Any:
    if adv is None:
        return returns, adv
    return adv, returns


def beside_returns(values: Any, out: Any) -> Any:
    returns = out + values
    return returns, out


def sum_first(a: Any, values: Any) -> Any:
    return a + values, a


def sum_second(a: Any, values: Any) -> Any:
    return a, values + a


def under_a_letter(a: Any, values: Any) -> Any:
    R = a + values  # noqa: N806 - as users write it
    return [a, R]


def with_a_bonus(adv: Any, bonus: Any) -> Any:
    shaped = adv + bonus
    return adv, shaped


def of_keys(d: Any) -> Any:
    return d["returns"], d["advantages"]


def metrics(adv: Any) -> Any:
    return adv, {"mean": adv.mean()}


def alone(adv: Any) -> Any:
    return adv


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (usual, {"advantage": 0, "returns": 1}),
        (exchanged, {"returns": 0, "advantage": 1}),
        (summed, {"advantage": 0, "returns": 1}),
        (twice, {"advantage": 0, "returns": 1}),
        (by_key, {"returns": 0, "advantage": 1}),
        (beside_returns, {"returns": 0, "advantage": 1}),
        (sum_first, {"returns": 0, "advantage": 1}),
        (sum_second, {"returns": 1, "advantage": 0}),
        (of_keys, {"returns": 0, "advantage": 1}),
        (under_a_letter, {"advantage": 0, "returns": 1}),
        (with_a_bonus, {"advantage": 0}),
        (by_call, {"advantage": 0, "returns": 1}),
        (inner, {}),
        (two_orders, {}),
        (metrics, {}),
        (alone, {}),
        (len, {}),
    ],
)
def test_items_are_found_by_their_names(function: Callable[..., Any], expected: dict[str, int]) -> None:
    assert returned_names(function) == expected
