"""Callbacks do nothing unless they are set."""

from rl_sentinel.train.run.run_context import Callbacks


def test_callbacks_are_optional() -> None:
    callbacks = Callbacks()
    callbacks.warm_start(1, 2)
    callbacks.step({}, {})
    callbacks.message("")
    callbacks.completions([])
    callbacks.evaluation(0, {})
