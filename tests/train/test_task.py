"""What an environment is: any class with these methods will do."""

from rl_sentinel.train.environment import sort
from rl_sentinel.train.task import Environment, Outcome, Task, Warmed
from training import Letter


def test_any_class_with_these_methods_is_one() -> None:
    """No base class; a type checker agrees."""
    every: list[Environment] = [sort.Environment(), Letter()]
    shown: list[Warmed] = [sort.Environment(), Letter()]
    assert len(every) == len(shown)
    assert Letter().reply(Task("a", "a"), ["aab"], ended=True) == Outcome(2 / 3, correct=False)
