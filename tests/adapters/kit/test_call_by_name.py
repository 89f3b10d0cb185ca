"""Functions that cannot be called with keyword arguments."""

import inspect
from collections.abc import Callable
from typing import Any

from rl_sentinel.adapters.kit.call_by_name import not_callable_by_name, takes_more


def _reason(function: Callable[..., Any]) -> str:
    return not_callable_by_name(inspect.signature(function).parameters)


def test_reasons() -> None:
    """A method, parameters by position only, and a wrapper without names."""
    assert "is a method" in _reason(lambda self, rewards: (self, rewards))
    assert "takes rewards by position only" in _reason(lambda rewards, /, mask: (rewards, mask))
    assert "takes *args, **options, expected parameters by name" in _reason(lambda *args, **options: (args, options))


def test_no_reason() -> None:
    """Parameters by name; a default makes a positional parameter optional; there may be further arguments."""
    assert _reason(lambda rewards, *, mask: (rewards, mask)) == ""
    assert _reason(lambda scale=1.0, /, *, rewards: (scale, rewards)) == ""
    assert _reason(lambda rewards, **options: (rewards, options)) == ""
    assert _reason(lambda: None) == ""


def test_further_keyword_arguments() -> None:
    """Further positional arguments do not count."""
    assert takes_more(inspect.signature(lambda **options: options).parameters)
    assert not takes_more(inspect.signature(lambda *args: args).parameters)
