"""Prompts from a data file, scored by reward functions of the user."""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import nearest
from rl_sentinel.train.config.user_code import describe
from rl_sentinel.train.rollout.interfaces import Outcome, Request, Task
from rl_sentinel.train.rollout.rewards import RewardFunction, build_rewards, score_all
from rl_sentinel.train.rollout.rows import Row, load_rows
from rl_sentinel.train.run import rng

#: The keys of a message.
_MESSAGE = {"role", "content"}


@dataclass(frozen=True)
class Environment:
    """Rows of ``file``: a JSON object per line, or a folder of the library ``datasets`` with its ``split``.

    ``prompt`` and ``answer`` name columns; ``answer = ""`` if the data has none. A prompt is a text, or a list of
    messages with ``role`` and ``content`` for a chat template. ``reward`` is a function, as ``file.py:function``, or a
    list of tables with ``function``, ``name``, ``weight`` and ``seconds``. A function takes, by name, any of ``prompt``
    (a text, or that of the last message), ``response``, ``answer``, ``ended`` (False if the response was cut) and the
    columns, and returns a number; it may be ``async``. A response whose weighted sum is ``full`` or more is correct.
    """

    file: str
    reward: str | tuple[Mapping[str, Any], ...]
    split: str = ""
    prompt: str = "prompt"
    answer: str = "answer"
    full: float = 1.0

    def __post_init__(self) -> None:
        """Read the file and resolve the functions, which validates both."""
        for key in ("prompt", "answer"):
            column, columns = getattr(self, key), list(self._rows[0])
            if column not in columns and (column or key == "prompt"):
                fix = nearest(column, columns)
                fix += ', or set answer = "" for data without answers' if key == "answer" else ""
                raise SentinelError(
                    f"environment.{key} {column!r} is not a column of the first row of {self.file}, {fix}"
                )
        for number, row in enumerate(self._rows, 1):
            _messages(row.get(self.prompt), f"{self.file} row {number}[{self.prompt}]")
            if self.answer and self.answer not in row:
                where = f"environment.answer {self.answer!r} is missing in {self.file} row {number}"
                raise SentinelError(
                    f'{where}, expected an answer in each row: add the answer, or set answer = "" for data without '
                    "answers"
                )
        assert self._rewards  # noqa: S101 - resolved here, so that a bad name is reported first

    @cached_property
    def _rows(self) -> tuple[Row, ...]:
        return load_rows(self.file, self.split)

    @cached_property
    def _rewards(self) -> tuple[RewardFunction, ...]:
        return build_rewards("environment.reward", self.reward, self._rows[0].keys())

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the reward functions."""
        return tuple(reward.name for reward in self._rewards)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each function in the reward."""
        return tuple(reward.weight for reward in self._rewards)

    @property
    def size(self) -> int:
        """The number of rows, a count."""
        return len(self._rows)

    @cached_property
    def digest(self) -> str:
        """A digest of the rows, by which a resumed run notices that the file has changed."""
        return hashlib.sha256(json.dumps(self._rows, sort_keys=True, default=str).encode()).hexdigest()

    def numbered_task(self, number: int, seed: int) -> Task:
        """The task with the index ``number`` in passes over the rows; each pass is shuffled anew."""
        passed, place = divmod(number, self.size)
        number = _order(self.size, seed, passed)[place]
        row, source = self._rows[number], f"{self.file} row {number + 1}"
        messages = _messages(row.get(self.prompt), f"{source}[{self.prompt}]")
        prompt = messages[-1]["content"] if messages else row[self.prompt]
        return Task(prompt, str(row.get(self.answer, "")), messages, row, source)

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """The outcome of one response."""
        return self.replies([Request(task, tuple(responses), ended)])[0]

    def replies(self, requests: Sequence[Request]) -> list[str | Outcome]:
        """The outcomes of several responses, scored concurrently."""
        values = [
            {
                **request.task.columns,
                "prompt": request.task.prompt,
                "answer": request.task.columns.get(self.answer, ""),
                "response": request.responses[-1],
                "ended": request.ended,
            }
            for request in requests
        ]
        return [*score_all(self._rewards, values, correct_from=self.full)]


def _messages(prompt: object, where: str) -> tuple[Mapping[str, str], ...]:
    """The messages of a prompt; empty for a text.

    Raises:
        SentinelError: if it is neither a text nor a list of messages, or is empty.
    """
    if isinstance(prompt, str) and prompt:
        return ()
    messages = tuple(prompt) if isinstance(prompt, (list, tuple)) else ()
    if not messages:
        expected = "a text or a list of messages with role and content, not empty"
        raise SentinelError(f"environment.file {where} is {describe(prompt)}, expected {expected}")
    for number, message in enumerate(messages):
        if not (isinstance(message, Mapping) and message.keys() >= _MESSAGE and isinstance(message["content"], str)):
            expected = "a message with role and content, of which the content is a text"
            raise SentinelError(f"environment.file {where}[{number}] is {describe(message)}, expected {expected}")
    return messages


@lru_cache(maxsize=4)
def _order(size: int, seed: int, passed: int) -> list[int]:
    order = list(range(size))
    random.Random(rng.derive_seed(seed, "rows", passed)).shuffle(order)
    return order
