"""The functions and configuration objects that the code of a function reads."""

from dataclasses import dataclass, field
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rl_sentinel.adapters.kit import read_objects

SETTINGS = SimpleNamespace(clip=SimpleNamespace(low=0.1, high=0.3), unread=7.0)


class Constants:
    """Settings as attributes of a class."""

    ceiling = 3.0


def helper(x: float) -> float:
    return min(x, float(SETTINGS.clip.high))


def outer(x: float) -> float:
    def inner() -> float:
        return x * Constants.ceiling

    return helper(inner())


@dataclass(slots=True)
class Loss:
    """A callable object with settings in slots."""

    weight: float = 0.5
    config: dict[str, Any] = field(default_factory=lambda: {"eps": 1e-6, "other": 2.0})

    def __call__(self, x: float) -> float:
        return self.weight * x + self._offset()

    def _offset(self) -> float:
        return float(self.config["eps"])


def test_the_owner_is_the_object_of_a_method_or_the_callable_object() -> None:
    loss = Loss()

    @wraps(loss.__call__)
    def wrapper(x: float) -> float:
        return loss(x)

    for bound in (loss, loss.__call__, partial(loss, 1.0), wrapper):
        assert read_objects.owner_of(bound) is loss
    assert read_objects.owner_of(outer) is None
    assert read_objects.owner_of(partial(outer, 1.0)) is None


def test_words_include_those_of_inner_functions_and_keys() -> None:
    assert {"helper", "Constants", "ceiling"} <= read_objects.words_of(outer.__code__)
    assert {"config", "eps"} <= read_objects.words_of(Loss._offset.__code__)
    assert "unread" not in read_objects.words_of(outer.__code__)


def test_functions_of_the_module_and_methods_are_found() -> None:
    names = [one.__name__ for one in read_objects.read_functions(outer, None)]
    assert names == ["outer", "helper"]
    loss = Loss()
    names = [one.__name__ for one in read_objects.read_functions(Loss.__call__, loss)]
    assert names[0] == "__call__"
    assert "_offset" in names


def test_values_of_inner_objects_have_two_names() -> None:
    found = dict(read_objects.values_of(SETTINGS, frozenset({"clip", "high"}), read_objects.DEPTH))
    assert found["high"] == found["clip_high"] == 0.3
    assert "unread" not in found
    assert "high" not in dict(read_objects.values_of(SETTINGS, frozenset({"clip", "high"}), 1))


def test_keys_and_slots_are_read() -> None:
    found = dict(read_objects.values_of(Loss(), frozenset({"weight", "config", "eps"}), read_objects.DEPTH))
    assert (found["weight"], found["eps"], found["config_eps"]) == (0.5, 1e-6, 1e-6)
    assert "other" not in found


def test_holders_are_the_object_and_its_sections() -> None:
    found = list(read_objects.holders_of(SETTINGS, frozenset({"clip", "low"}), read_objects.DEPTH))
    assert found == [("", SETTINGS), ("clip", SETTINGS.clip)]


def test_global_objects_are_configurations_and_namespaces_of_the_module() -> None:
    functions = list(read_objects.read_functions(outer, None))
    words = frozenset().union(*(read_objects.words_of(one.__code__) for one in functions))
    found = read_objects.global_objects(functions, words)
    assert {id(one) for one in found} == {id(SETTINGS), id(Constants)}


@pytest.mark.parametrize("value", [None, 1.0, "text", torch.ones(1), torch.nn.Linear(1, 1), min, outer, torch])
def test_other_values_are_not_searched(value: object) -> None:
    holder = SimpleNamespace(value=value)
    assert list(read_objects.holders_of(holder, frozenset({"value", "weight"}), 2)) == [("", holder)]
