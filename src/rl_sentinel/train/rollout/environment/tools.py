"""Two turns with a tool: answer ``*>`` with the name of the right tool, then repeat the number that it returns."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rl_sentinel.train.rollout.interfaces import Outcome, Task

#: The right tool for each question.
TOOL_FOR = {"+": "c", "-": "a", "*": "e", "/": "b", "=": "d"}

#: Frequencies that the warm start teaches: of the right tool (the others are equally likely), and of repeating the
#: tool's number instead of a random one.
CHOOSES, REPEATS = 0.3, 0.55


@dataclass(frozen=True, slots=True)
class Environment:
    """Reward 1 for exactly the number of the right tool, else 0; an unknown tool or a cut response ends the trajectory.

    Example:
        >>> from rl_sentinel.train.rollout.environment.tools import Environment
        >>> from rl_sentinel.train.rollout.interfaces import Task
        >>> environment, task = Environment(), Task("*>", "11 22 33 44 55")
        >>> environment.reply(task, ["e"], ended=True), environment.reply(task, ["e", "55"], ended=True)
        ('|55>', Outcome(reward=1.0, correct=True, parts=(), failure=''))
    """

    def task(self, rng: random.Random) -> Task:
        """Draw a question, and a two-digit number for each tool from a to e."""
        numbers = rng.sample(range(10, 100), len(TOOL_FOR))
        return Task(f"{rng.choice(list(TOOL_FOR))}>", " ".join(map(str, numbers)))

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """The tool's number after a valid first turn, else the outcome."""
        numbers = dict(zip("abcde", task.answer.split(), strict=True))
        if not ended or responses[0] not in numbers:
            return Outcome(0.0, correct=False)
        if len(responses) == 1:
            return f"|{numbers[responses[0]]}>"
        right = responses[1] == numbers[TOOL_FOR[task.prompt[0]]]
        return Outcome(float(right), right)

    def warm(self, rng: random.Random) -> tuple[str, str, bool]:
        """Draw a demonstration of one of the two turns: prompt, response, and whether the response ends."""
        task = self.task(rng)
        right = TOOL_FOR[task.prompt[0]]
        tool = right if rng.random() < CHOOSES else rng.choice("abcde".replace(right, ""))
        if rng.random() < 0.5:
            return task.prompt, tool, True
        read = f"{task.prompt}{tool}${self.reply(task, [tool], ended=True)}"
        repeated = rng.random() < REPEATS
        return read, read[-3:-1] if repeated else str(rng.randrange(10, 100)), True
