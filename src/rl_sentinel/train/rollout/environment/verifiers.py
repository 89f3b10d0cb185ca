"""Single-turn tasksets of verifiers 0.4 or newer (``verifiers.v1``), with their own prompts and rewards."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import reason_of
from rl_sentinel.train.config.user_code import import_object
from rl_sentinel.train.rollout.interfaces import Outcome, Task


@dataclass(frozen=True, slots=True)
class Environment:
    """``taskset`` names a Taskset as ``pkg.module:Class``; its first ``most`` tasks are used.

    ``template`` formats the system prompt and the prompt. The reward is the sum of the task's weighted rewards, and 0
    for a response without an end; a reward of ``full`` or more is correct. Tools, several turns and rewards that need a
    sandbox are not supported.
    """

    taskset: str
    most: int = 1000
    template: str = "{system}{prompt}\n"
    full: float = 1.0

    def __post_init__(self) -> None:
        """Validate ``most``, and load the taskset, which validates it."""
        if self.most < 1:
            raise SentinelError(f"environment.most is {self.most}, expected 1 or more")
        _load_tasks(self.taskset, self.most)

    def task(self, rng: random.Random) -> Task:
        """Draw one of the tasks; its index is the answer."""
        tasks = _load_tasks(self.taskset, self.most)
        place = rng.randrange(len(tasks))
        data = tasks[place].data
        return Task(self.template.format(system=data.system_prompt or "", prompt=data.prompt_text), str(place))

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """The outcome by the taskset's reward functions."""
        if not ended:
            return Outcome(0.0, correct=False)
        reward = _score(_load_tasks(self.taskset, self.most)[int(task.answer)], responses[-1])
        return Outcome(reward, reward >= self.full)


@lru_cache(maxsize=8)
def _load_tasks(name: str, most: int) -> list[Any]:
    try:
        import verifiers.v1 as vf  # noqa: PLC0415 - an extra
    except ImportError as error:
        fix = "pip install 'verifiers>=0.4'"
        raise SentinelError(
            f"environment verifiers needs verifiers of 0.4 or newer ({reason_of(error)}): {fix}"
        ) from error
    kind = import_object("environment.taskset", name)
    try:
        tasks = list(kind(vf.TasksetConfig()).take(most))
    except Exception as error:  # user code
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise SentinelError(
            f"environment.taskset {name!r} cannot be loaded ({reason}): fix the taskset, or name another Taskset class"
        ) from error
    if not tasks:
        raise SentinelError(
            f"environment.taskset {name!r} has no tasks, expected at least one: choose another Taskset class"
        )
    if type(tasks[0]).toolsets(tasks[0].config):
        raise SentinelError(
            f"environment.taskset {name!r} has tools, expected tasks without tools: only one turn of text is "
            "supported, so choose another taskset"
        )
    if tasks[0].data.prompt is None:
        raise SentinelError(
            f"environment.taskset {name!r} has a task without a prompt, expected a prompt in each task: choose another "
            "taskset"
        )
    return tasks


def _score(task: Any, response: str) -> float:  # noqa: ANN401 - a task of verifiers
    """Score a conversation of one response."""
    import verifiers.v1 as vf  # noqa: PLC0415 - an extra
    from verifiers.v1.graph import MessageNode  # noqa: PLC0415 - as above

    question = MessageNode(message=vf.UserMessage(content=task.data.prompt_text))
    answer = MessageNode(parent=0, message=vf.AssistantMessage(content=response), sampled=True)
    agent = vf.AgentInfo(config=vf.AgentConfig())
    trace = vf.Trace(task=vf.TraceTask(type=type(task).__name__, data=task.data), agent=agent, nodes=[question, answer])
    try:
        asyncio.run(task.score(trace))
    except vf.TaskError as error:
        raise SentinelError(
            f"environment.taskset failed to score a response ({reason_of(error)}): fix its rewards"
        ) from error
    if not trace.rewards:
        raise SentinelError(
            "environment.taskset gave no reward for a response, expected a reward that needs no sandbox: choose "
            "another taskset"
        )
    return float(trace.reward)
