"""Digests of descriptions: the same for the same description, another one for any difference, none if in doubt."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.description import description_digest
from rl_sentinel.core.boundary import Boundary, Output, Step


def _boundary(value: Any = 1, **more: Any) -> Boundary:
    about: dict[str, Any] = {"path": "house.loss", "stage": "advantage", "outputs": {"advantage": Output("B")}}
    step = Step(call="house.loss", arguments={"value": Constant(value)})
    return Boundary(**{**about, "steps": (step,), **more})


def _digest(boundary: Boundary, *others: Boundary) -> str:
    return description_digest(boundary, {b.path: b for b in (boundary, *others)})


def _closure(number: float) -> Callable[[], float]:
    def call() -> float:
        return number

    call.__module__ = "rl_sentinel.adapters.house"
    return call


def _local_class(number: float) -> type:
    class Fake:
        value = number

    Fake.__module__ = "rl_sentinel.adapters.house"
    return Fake


class _Plain:
    """An object of a class written in Python."""

    def __init__(self, **state: object) -> None:
        vars(self).update(state)


VALUES: list[Callable[[], Any]] = [
    lambda: 1,
    lambda: 1.0,
    lambda: True,
    lambda: "1",
    lambda: None,
    lambda: (1, 2),
    lambda: [1, 2],
    lambda: {"a": 1, "b": 2},
    lambda: {"b": 2, "a": 1},
    lambda: frozenset({"a", "b"}),
    lambda: torch.tensor([1.0, 2.0]),
    lambda: torch.tensor([1.0, 3.0]),
    lambda: torch.tensor([[1.0, 2.0]]),
    lambda: torch.tensor(1.0, dtype=torch.bfloat16),
    lambda: torch.float32,
    lambda: _closure(1.0),
    lambda: _closure(2.0),
    lambda: functools.partial(max, 3),
    lambda: _local_class(1.0),
    lambda: _local_class(2.0),
    lambda: _Plain(a=1),
    lambda: _Plain(a=2),
    lambda: torch.nn.Linear,
    lambda: Path("a"),
    lambda: _Plain.__init__,
]


def test_same_description_has_the_same_digest_and_others_another() -> None:
    first, second = ([_digest(_boundary(make())) for make in VALUES] for _ in range(2))
    assert first == second
    assert all(first)
    assert len(set(first)) == len(VALUES)


def test_the_target_itself_is_no_part() -> None:
    assert _digest(_boundary(Target(Path("/a")))) == _digest(_boundary(Target(Path("/b"))))


@pytest.mark.parametrize(
    "change",
    [
        {"stage": "kl"},
        {"reach": "when"},
        {"settings": {"default": {"clip": 1}}},
        {"requires": (_closure(1.0),)},
        {"unused": frozenset({"reward"})},
    ],
)
def test_all_parts_of_a_boundary_count(change: dict[str, Any]) -> None:
    assert _digest(_boundary(**change)) != _digest(_boundary())


def test_alternatives_count() -> None:
    own = _boundary(alternatives=("house.twin",))
    one, other = (replace(_boundary(value), path="house.twin") for value in (1, 2))
    assert _digest(own, one) != _digest(own, other)
    assert _digest(_boundary(), one) == _digest(_boundary(), other)


def test_cycles_end() -> None:
    values: list[Any] = [1]
    values.append(values)
    assert _digest(_boundary(values)) != _digest(_boundary([1, [1]]))


@pytest.mark.parametrize("value", [iter([1]), itertools.count(), torch.Generator(), object(), {_Plain(), _Plain()}])
def test_state_that_cannot_be_read_has_no_digest(value: object) -> None:
    assert _digest(_boundary(value)) == ""
