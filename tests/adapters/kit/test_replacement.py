"""Replaced globals return to their values; a bare instance has only the attributes that it was given."""

import inspect
from abc import ABC, abstractmethod

import pytest

from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals


def test_globals_return_after_an_error() -> None:
    """Both modules get the new value, and neither gets a name that it lacks."""
    first, second = {"a": 1, "b": 2}, {"a": 3}

    def fail_inside() -> None:
        with replaced_globals(first, second, a=10, b=20):
            assert (first, second) == ({"a": 10, "b": 20}, {"a": 10})
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert (first, second) == ({"a": 1, "b": 2}, {"a": 3})


def test_init_does_not_run() -> None:
    class Owner:
        def __init__(self) -> None:
            raise AssertionError

        def double(self) -> int:
            return 2 * int(vars(self)["size"])

    instance = bare_instance(Owner, size=3)
    assert isinstance(instance, Owner)
    assert instance.double() == 6
    assert vars(instance) == {"size": 3}


def test_instance_of_an_abstract_class() -> None:
    """Its concrete methods run; the class itself stays abstract."""

    class Owner(ABC):
        @abstractmethod
        def start(self) -> None: ...

        def double(self) -> int:
            return 2 * int(vars(self)["size"])

    assert bare_instance(Owner, size=3).double() == 6
    assert inspect.isabstract(Owner)
