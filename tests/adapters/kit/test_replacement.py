"""Replaced globals return to their values; a bare instance has only the attributes that it was given."""

import inspect
import sys
from abc import ABC, abstractmethod
from types import ModuleType

import pytest

from rl_sentinel.adapters.kit.replacement import bare_instance, installed_modules, replaced_globals


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


def test_modules_return_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that was there returns, a new one goes, and one that is imported meanwhile stays."""
    first, fake, meanwhile = (ModuleType(name) for name in ("first", "fake", "meanwhile"))
    monkeypatch.setitem(sys.modules, "specimen_first", first)
    monkeypatch.setitem(sys.modules, "specimen_meanwhile", fake)

    def fail_inside() -> None:
        with installed_modules({"specimen_first": fake, "specimen_second": fake}):
            assert sys.modules["specimen_first"] is sys.modules["specimen_second"] is fake
            sys.modules["specimen_meanwhile"] = meanwhile
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert sys.modules["specimen_first"] is first
    assert "specimen_second" not in sys.modules
    assert sys.modules["specimen_meanwhile"] is meanwhile


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
