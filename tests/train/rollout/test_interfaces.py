"""Environments and engines need no base class; a type checker checks that they fit."""

from rl_sentinel.train.model.policy import init_policy
from rl_sentinel.train.rollout.engine.process import Engine as InProcess
from rl_sentinel.train.rollout.environment import sort
from rl_sentinel.train.rollout.interfaces import Engine, Outcome, Task, WarmStartEnvironment
from training import Letter, ScriptedEngine, recipe


def test_environments_need_no_base_class() -> None:
    every: list[WarmStartEnvironment] = [sort.Environment(), Letter()]
    assert all(callable(e.warm) for e in every)
    assert Letter().reply(Task("a", "a"), ["aab"], ended=True) == Outcome(2 / 3, correct=False)


def test_engines_are_interchangeable() -> None:
    every: list[Engine] = [InProcess(init_policy(recipe()), 1.0, 2), ScriptedEngine(["ab"])]
    assert all(callable(e.sample) for e in every)
