"""Callbacks do nothing unless they are set."""

from pathlib import Path

from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.run.run_context import Callbacks
from training import recipe


def test_callbacks_are_optional() -> None:
    callbacks = Callbacks()
    callbacks.warm_start(1, 2)
    callbacks.step({}, {})
    callbacks.message("")
    callbacks.completions([])
    callbacks.evaluation(0, {})
    callbacks.opened(Path("nowhere"), select_components(recipe()))
