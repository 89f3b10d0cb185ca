"""Wrap the environment of a recipe, so that its tasks and outcomes are validated before they are used."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.user_code import call_user_code, describe
from rl_sentinel.train.model.character_tokenizer import CharacterTokenizer
from rl_sentinel.train.model.chat_template import read_template
from rl_sentinel.train.rollout.chat import apply_chat
from rl_sentinel.train.rollout.episodes import UniformDraws, start_episodes
from rl_sentinel.train.rollout.interfaces import Environment, Outcome, Request, Task
from rl_sentinel.train.rollout.prompts import draw_task, encode_text, require_length
from rl_sentinel.train.run import rng


class CheckedEnvironment:
    """An environment whose tasks and replies are validated; other attributes come from the inner environment."""

    def __init__(self, inner: Any, name: str) -> None:  # noqa: ANN401 - what a recipe named
        """Store the environment, and its name in the recipe for messages.

        Raises:
            SentinelError: if a method is missing.
        """
        self._inner, self._name = inner, name
        tasks = any(callable(getattr(inner, n, None)) for n in ("task", "numbered_task"))
        if not tasks or not callable(getattr(inner, "reply", None)):
            fix = "name a class with the methods of Environment in rl_sentinel.train.rollout.interfaces"
            raise SentinelError(
                f"environment.name {name!r} is {describe(inner)}, expected methods task() or numbered_task(), and "
                f"reply(): {fix}"
            )

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the inner environment's own
        """An attribute of the inner environment; the results of its optional functions are checked."""
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._inner, name)
        if name in ("numbered_task", "replies"):
            return partial(self._numbered_task if name == "numbered_task" else self._replies, value)
        return value

    def task(self, rng: random.Random) -> Task:
        """Draw a task.

        Raises:
            SentinelError: if the inner environment raises, or does not return a task whose prompt is a string.
        """
        return self._checked_task("task", call_user_code(self._key("task"), self._inner.task, rng))

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """The next text, or an outcome with its numbers converted to floats.

        Raises:
            SentinelError: if the inner environment raises, or returns neither a text nor a valid outcome.
        """
        reply = call_user_code(self._key("reply"), self._inner.reply, task, responses, ended=ended)
        return self._checked_reply("reply", reply)

    def _numbered_task(self, function: Callable[[int, int], Task], number: int, seed: int) -> Task:
        return self._checked_task("numbered_task", call_user_code(self._key("numbered_task"), function, number, seed))

    def _replies(
        self, function: Callable[[Sequence[Request]], list[str | Outcome]], requests: Sequence[Request]
    ) -> list[str | Outcome]:
        replies = call_user_code(self._key("replies"), function, requests)
        if not isinstance(replies, (list, tuple)) or len(replies) != len(requests):
            raise self._wrong("replies", describe(replies), f"a list of {len(requests)} replies, one per request")
        return [self._checked_reply("replies", reply) for reply in replies]

    def _checked_task(self, function: str, task: object) -> Task:
        if not isinstance(task, Task) or not isinstance(task.prompt, str):
            raise self._wrong(
                function, describe(task), "a Task of rl_sentinel.train.rollout.interfaces whose prompt is a str"
            )
        return task

    def _checked_reply(self, function: str, reply: object) -> str | Outcome:
        if isinstance(reply, str):
            return reply
        if not isinstance(reply, Outcome):
            raise self._wrong(function, describe(reply), "a text or an Outcome of rl_sentinel.train.rollout.interfaces")
        kinds = type(reply.reward), type(reply.correct), type(reply.parts)
        if kinds == (float, bool, tuple) and all(type(part) is float for part in reply.parts):
            return reply  # nothing to convert
        if not isinstance(reply.parts, (tuple, list)):
            wrong = f"an Outcome whose parts are {describe(reply.parts)}"
            raise self._wrong(function, wrong, "an Outcome whose parts are a tuple or list of numbers")
        parts = ((f"parts[{n}]", part) for n, part in enumerate(reply.parts))
        for name, number in (("reward", reply.reward), *parts):
            if not isinstance(number, Real):
                wrong = f"an Outcome whose {name} is {describe(number)}"
                raise self._wrong(function, wrong, f"an Outcome whose {name} is a number")
        numbers = tuple(float(part) for part in reply.parts)
        return replace(reply, reward=float(reply.reward), correct=bool(reply.correct), parts=numbers)

    def _key(self, function: str) -> str:
        return f"environment.name {self._name!r}: {function}()"

    def _wrong(self, function: str, returned: str, expected: str) -> SentinelError:
        return SentinelError(f"{self._key(function)} returned {returned}, expected {expected}: fix the method")


class CheckedWarmStartEnvironment(CheckedEnvironment):
    """A checked environment that also has demonstrations."""

    def warm(self, rng: random.Random) -> tuple[str, str, bool]:
        """Draw a prompt, a response, and whether the response ends.

        Raises:
            SentinelError: if the inner environment raises, or does not return these three values.
        """
        answer = call_user_code(self._key("warm"), self._inner.warm, rng)
        three = isinstance(answer, (tuple, list)) and len(answer) == 3
        if not three or not isinstance(answer[0], str) or not answer[0] or not isinstance(answer[1], str):
            wanted = "(prompt, response, ends): two strings, of which the prompt is not empty, and a bool"
            raise self._wrong("warm", describe(answer), wanted)
        return answer[0], answer[1], bool(answer[2])


def wrap_environment(inner: Any, name: str) -> Environment:  # noqa: ANN401 - what a recipe named
    """Wrap an environment in a class of the same module, since the warm start's cache key has that module's source.

    Raises:
        SentinelError: if a method is missing.
    """
    kind = CheckedWarmStartEnvironment if callable(getattr(inner, "warm", None)) else CheckedEnvironment
    return type(kind.__name__, (kind,), {"__module__": type(inner).__module__})(inner, name)  # type: ignore[no-any-return]  # built here


def try_environment(environment: Environment, recipe: Recipe) -> None:
    """Draw the first task; for the tiny policy, check that the task and the first demonstration fit.

    Raises:
        SentinelError: if they are invalid or too long, or do not fit the recipe's ``[chat]`` or ``[warm]``.
    """
    rollout, warm = recipe.rollout, recipe.warm
    if warm is not None and not hasattr(environment, "warm"):
        raise SentinelError(
            f"environment {recipe.environment.name} has no method warm(), expected this method with [warm]: add the "
            "method, or remove [warm]"
        )
    task = draw_task(environment, recipe.seed, 0, 0, prompts=rollout.prompts)
    if task.messages and recipe.chat is None:
        raise SentinelError(
            "chat is missing, expected a chat template for prompts that are lists of messages: add [chat]"
        )
    if recipe.chat is not None and recipe.chat.template != "tokenizer":
        read_template(recipe.chat.template)
    if recipe.policy.load:
        return
    tokenizer = CharacterTokenizer(recipe.policy.positions)
    environment = apply_chat(environment, recipe.chat, tokenizer)
    draws = UniformDraws(recipe.seed, 0, rollout.responses, rollout.tokens)
    start_episodes(environment, tokenizer, draws, prompts=1, responses=1)
    if warm is not None:
        prompt, response, ends = environment.warm(rng.python_rng(warm.seed, "warm", 0))  # type: ignore[attr-defined]  # checked above
        size = len(encode_text(tokenizer, response, " (warm())")) + ends
        require_length(
            tokenizer, len(encode_text(tokenizer, prompt, " (warm())")), size, what="response length of warm()"
        )
