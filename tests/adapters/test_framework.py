"""What an adapter need not say of its framework."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.installation import Installation


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
