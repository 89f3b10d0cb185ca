"""RL-Sentinel: audit, compute and guard the training signal of LLM reinforcement learning."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if sys.version_info < (3, 11):  # noqa: UP036 - installers check the version; this covers runs from the source tree
    _WORDS = "rl-sentinel: Python is %d.%d, expected 3.11 or newer: run it with another interpreter"
    _WORDS = _WORDS % sys.version_info[:2]
    if sys.argv[:1] == ["-m"]:
        sys.stderr.write(_WORDS + "\n")
        raise SystemExit(2)
    raise ImportError(_WORDS)

if TYPE_CHECKING:
    from rl_sentinel.checks.api import assert_sound, check
    from rl_sentinel.core.errors import InputError

__all__ = ("InputError", "assert_sound", "check")

_PLACES = {"InputError": "core.errors", "assert_sound": "checks.api", "check": "checks.api"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public object
    """Import public objects when they are first used: ``check`` and ``assert_sound`` need torch."""
    if name in _PLACES:
        return getattr(importlib.import_module(f"rl_sentinel.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
