"""What an engine answers."""

from rl_sentinel.train.engine.process import Engine as InProcess
from rl_sentinel.train.policy import from_scratch
from rl_sentinel.train.sampling import Engine
from training import Scripted, recipe


def test_engines_are_interchangeable() -> None:
    """By their one method; a type checker agrees."""
    every: list[Engine] = [InProcess(from_scratch(recipe()), 1.0, 2), Scripted(["ab"])]
    assert all(callable(e.sample) for e in every)
