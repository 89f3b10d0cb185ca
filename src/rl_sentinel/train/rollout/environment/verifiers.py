"""A taskset of verifiers (its stack of version 1, from 0.4 on), one turn each: its prompts, and its own rewards."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.user_code import imported
from rl_sentinel.train.rollout.interfaces import Outcome, Task


@dataclass(frozen=True, slots=True)
class Environment:
    """``taskset`` names a Taskset as ``pkg.module:Class``, of whose tasks the first ``most`` are asked.

    The system prompt and the prompt stand in ``template``, as the policy was taught to read them. The reward is the sum
    of the task's weighted rewards that need no sandbox; right is a reward of ``full`` or more. A response that was cut
    is worth 0. Tools, several turns and rewards that need a sandbox are refused: they want verifiers' own loop.
    """

    taskset: str
    most: int = 1000
    template: str = "{system}{prompt}\n"
    full: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a taskset that cannot be loaded or asked, before anything is sampled."""
        _tasks(self.taskset, self.most)

    def task(self, rng: random.Random) -> Task:
        """One of the taskset's, known by its place."""
        tasks = _tasks(self.taskset, self.most)
        place = rng.randrange(len(tasks))
        data = tasks[place].data
        return Task(self.template.format(system=data.system_prompt or "", prompt=data.prompt_text), str(place))

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """What the taskset's own functions give for it."""
        if not ended:
            return Outcome(0.0, correct=False)
        reward = _scored(_tasks(self.taskset, self.most)[int(task.answer)], responses[-1])
        return Outcome(reward, reward >= self.full)


@lru_cache(maxsize=8)
def _tasks(name: str, most: int) -> list[Any]:
    try:
        import verifiers.v1 as vf  # noqa: PLC0415 - an extra
    except ImportError as error:
        way = "pip install 'verifiers>=0.4'"
        raise SentinelError(f"environment verifiers needs verifiers of 0.4 or newer ({error}): {way}") from error
    kind = imported("environment.taskset", name)
    try:
        tasks = list(kind(vf.TasksetConfig()).take(most))
    except Exception as error:  # code of others, which may raise anything
        raise SentinelError(f"environment.taskset {name!r} cannot be loaded ({error}): name a Taskset") from error
    if not tasks:
        raise SentinelError(f"environment.taskset {name!r} has no task, expected one or more")
    if type(tasks[0]).toolsets(tasks[0].config) or tasks[0].data.prompt is None:
        raise SentinelError(f"environment.taskset {name!r} has tools or opens by itself, expected one turn of text")
    return tasks


def _scored(task: Any, responses: str) -> float:  # noqa: ANN401 - a task of verifiers
    """The task's rewards of a conversation of one answer."""
    import verifiers.v1 as vf  # noqa: PLC0415 - an extra
    from verifiers.v1.graph import MessageNode  # noqa: PLC0415 - as above

    asked = MessageNode(message=vf.UserMessage(content=task.data.prompt_text))
    answer = MessageNode(parent=0, message=vf.AssistantMessage(content=responses), sampled=True)
    agent = vf.AgentInfo(config=vf.AgentConfig())
    trace = vf.Trace(task=vf.TraceTask(type=type(task).__name__, data=task.data), agent=agent, nodes=[asked, answer])
    try:
        asyncio.run(task.score(trace))
    except vf.TaskError as error:
        raise SentinelError(f"environment.taskset failed to judge an answer ({error}): mend its rewards") from error
    if not trace.rewards:
        raise SentinelError("environment.taskset gave no reward without a sandbox, expected one that reads the answer")
    return float(trace.reward)
