"""What an adapter need not say of its framework."""

from dataclasses import FrozenInstanceError
from inspect import signature
from types import ModuleType
from typing import Any

import pytest

from rl_sentinel.adapters import areal, skyrl, slime, trl, verl
from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.installation import Installation
from rl_sentinel.core.modules import defined


def test_what_is_not_said() -> None:
    one, other = (Framework(name=n, package=n, boundaries=lambda _: iter(())) for n in ("one", "other"))
    assert (one.light("1.0"), one.installation("1.0"), one.distribution, one.bare) == ("", Installation(), "", ())
    assert not one.fakes
    assert not one.environment
    assert one.fakes is not other.fakes


def test_it_stays_as_it_was_said() -> None:
    positional: Any = Framework
    with pytest.raises(TypeError):
        positional("one", "one")
    found = Framework(name="one", package="one", boundaries=lambda _: iter(()))
    with pytest.raises(FrozenInstanceError):
        found.name = "other"  # type: ignore[misc]  # that it cannot be set is what is asked


@pytest.mark.parametrize("package", [areal, skyrl, slime, trl, verl])
def test_every_module_with_boundaries_is_listed(package: ModuleType) -> None:
    """A module that no list names would have no boundary, and nobody would notice."""
    made = defined(package, "boundaries").items()
    assert sorted(package.MODULES.split()) == [n for n, make in made if [*signature(make).parameters] == ["target"]]
