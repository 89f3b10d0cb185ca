"""The environment of a recipe: what it sets and answers is looked at before anything is made of it."""

import random
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.user_code import called, got
from rl_sentinel.train.model.character_tokenizer import Characters
from rl_sentinel.train.rollout.episodes import Chances, opened, require_room
from rl_sentinel.train.rollout.interfaces import Environment, Outcome, Task
from rl_sentinel.train.run import rng


class World:
    """An environment by its name in the recipe; all but its two functions is that of the one within."""

    def __init__(self, inner: Any, name: str) -> None:  # noqa: ANN401 - what a recipe named
        """What it is called is only told.

        Raises:
            SentinelError: if it is no environment.
        """
        self._inner, self._name = inner, name
        lacking = [f"{n}()" for n in ("task", "reply") if not callable(getattr(inner, n, None))]
        if lacking:
            way = "name a class with the methods of train/rollout/interfaces.py"
            raise SentinelError(f"environment.name {name!r} is {got(inner)}, expected {' and '.join(lacking)}: {way}")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the environment's own
        """Whatever else the environment has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def task(self, source: random.Random) -> Task:
        """A task.

        Raises:
            SentinelError: if it is none, or it cannot be drawn.
        """
        found = called(self._key("task"), self._inner.task, source)
        if not isinstance(found, Task) or not isinstance(found.prompt, str):
            raise SentinelError(f"{self._key('task')} gave {got(found)}, expected a Task with a prompt: mend it there")
        return found

    def reply(self, task: Task, said: Sequence[str], *, ended: bool) -> str | Outcome:
        """Text, or an outcome in plain numbers.

        Raises:
            SentinelError: if it is neither, a reward is no number, or it cannot be asked.
        """
        found = called(self._key("reply"), self._inner.reply, task, said, ended=ended)
        if isinstance(found, str):
            return found
        if not isinstance(found, Outcome):
            raise SentinelError(f"{self._key('reply')} gave {got(found)}, expected text or an Outcome: mend it there")
        if not isinstance(found.parts, (tuple, list)):
            raise SentinelError(f"{self._key('reply')} gave parts {got(found.parts)}, expected numbers: mend it there")
        for what, number in (("reward", found.reward), *(("parts", part) for part in found.parts)):
            if not isinstance(number, Real):
                raise SentinelError(
                    f"{self._key('reply')} gave an Outcome whose {what} is {got(number)}, expected a number: "
                    "mend it there"
                )
        parts = tuple(float(part) for part in found.parts)
        return replace(found, reward=float(found.reward), correct=bool(found.correct), parts=parts)

    def _key(self, function: str) -> str:
        return f"environment.name {self._name!r}: {function}()"


class Showing(World):
    """One that shows what to learn before."""

    def warm(self, source: random.Random) -> tuple[str, str, bool]:
        """A prompt, a response, and whether it ends.

        Raises:
            SentinelError: if it is none of that, or it cannot be asked.
        """
        found = called(self._key("warm"), self._inner.warm, source)
        three = isinstance(found, (tuple, list)) and len(found) == 3
        if not three or not isinstance(found[0], str) or not found[0] or not isinstance(found[1], str):
            raise SentinelError(
                f"{self._key('warm')} gave {got(found)}, expected a prompt, a response, and whether it ends: "
                "mend it there"
            )
        return found[0], found[1], bool(found[2])


def world(inner: Any, name: str) -> Environment:  # noqa: ANN401 - what a recipe named
    """An environment whose answers are looked at; its class says the same module as the one within.

    Raises:
        SentinelError: if it is no environment.

    Example:
        >>> from rl_sentinel.train.rollout.environment.sort import Environment
        >>> from rl_sentinel.train.rollout.checked_environment import world
        >>> world(Environment(digits=3), "sort").digits
        3
    """
    kind = Showing if callable(getattr(inner, "warm", None)) else World
    return type(kind.__name__, (kind,), {"__module__": type(inner).__module__})(inner, name)  # type: ignore[no-any-return]  # made here


def rehearse(environment: Environment, recipe: Recipe) -> None:
    """Draw the first task, and the first of what is shown, before anything is made; both must fit the policy.

    Raises:
        SentinelError: if they do not, or are none.
    """
    how, shape, warm = recipe.rollout, recipe.policy, recipe.warm
    if warm is not None and not hasattr(environment, "warm"):
        raise SentinelError(
            f"environment {recipe.environment.name} has no warm(), expected one where warm is asked for: "
            "leave [warm] out"
        )
    if shape.load:
        environment.task(rng.plain(recipe.seed, "task", 0, 0))
        return
    text = Characters(shape.positions)
    opened(environment, text, Chances(recipe.seed, 0, how.responses, how.tokens), prompts=1, responses=1)
    if warm is not None:
        prompt, said, ends = environment.warm(rng.plain(warm.seed, "warm", 0))  # type: ignore[attr-defined]  # asked before
        require_room(text, len(text.ids(prompt)), len(text.ids(said)) + ends, what="a response of warm()")
