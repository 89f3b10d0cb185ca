"""Interfaces of the rollout: environments, engines, and the records that they exchange."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Task:
    """One task: the prompt, and the data with which the environment scores a response.

    ``messages`` is a conversation that a chat template renders instead of the prompt, each message with ``role`` and
    ``content``. ``columns`` are further values for the environment. ``source`` says in messages where the task is
    from, such as a row of a file.
    """

    prompt: str
    answer: str
    messages: tuple[Mapping[str, str], ...] = field(default=(), repr=False)
    columns: Mapping[str, Any] = field(default_factory=dict, repr=False)
    source: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a trajectory: its reward, in reward units, and whether the response was correct.

    ``parts`` holds one number per name in ``Environment.parts``, each in its own reward unit, for estimators that
    weight the parts themselves and do not read ``reward``. ``failure`` says in one line why there is no reward; such a
    trajectory does not train, and is in no statistic of its group.
    """

    reward: float
    correct: bool
    parts: tuple[float, ...] = ()
    failure: str = ""


class Request(NamedTuple):
    """The arguments of one call of ``Environment.reply``."""

    task: Task
    responses: tuple[str, ...]
    ended: bool


class Environment(Protocol):
    """An environment: two stateless functions, so that a killed run can repeat any call after a resume.

    Some members are optional:

    - ``warm`` (see :class:`WarmStartEnvironment`);
    - ``parts``, the names of the parts of its reward; each ``Outcome`` then has one number per name;
    - ``weights``, the weight of each part in its reward, which an estimator of parts must share;
    - ``size`` and ``numbered_task(number, seed)`` of a finite data set, instead of ``task``: the tasks of numbers 0, 1,
      2, ... are shuffled passes over the data;
    - ``replies(requests)``, all replies of a turn at once, for an environment that computes them concurrently;
    - ``text(task)``, the text that the policy reads, if it is not ``task.prompt``.
    """

    def task(self, rng: random.Random) -> Task:
        """Draw a task."""

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """Answer the policy: the text for its next turn, or the outcome.

        Args:
            task: the task.
            responses: the policy's responses so far, one text per turn.
            ended: False if the last response was cut at the token limit.
        """


class WarmStartEnvironment(Environment, Protocol):
    """An environment with demonstrations, for supervised learning before RL."""

    def warm(self, rng: random.Random) -> tuple[str, str, bool]:
        """Draw a prompt, a response to learn, and whether the response ends."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One response: its tokens (the end token included), their log-probs in nats, and whether it ended.

    ``version`` is the number of updates that the sampling weights had seen.
    """

    token: tuple[int, ...]
    logprob: tuple[float, ...]
    ended: bool
    version: int


class Engine(Protocol):
    """A rollout engine: a sampler in this process, or a server.

    ``remote`` engines sample on a server that all ranks share, so that one rank sends the weights; ``version`` is
    the version of the newest weights.
    """

    remote: ClassVar[bool]
    version: int

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Sample with these weights from now on; ``version`` is the number of updates that they have seen."""

    def sample(
        self, prompts: Sequence[tuple[int, ...]], uniform: Float[Tensor, "B T"], *, greedy: bool = False
    ) -> list[Sampled]:
        """Sample one response per prompt.

        Args:
            prompts: token ids, of any lengths.
            uniform: one number in [0, 1) per token to sample. With it, samples do not depend on how rows are
                batched, except for rounding.
            greedy: take the most likely token each time and ignore ``uniform``.

        Returns:
            One response per prompt, in order.
        """
