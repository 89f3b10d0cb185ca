"""Trajectories: tasks are set, the policy answers turn by turn, and what came of it is laid out for the signal."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.merging import Step
from rl_sentinel.signal.rollout import Laid, laid_out
from rl_sentinel.train import chance
from rl_sentinel.train.policy import Text
from rl_sentinel.train.sampling import Engine, Sampled
from rl_sentinel.train.task import Environment, Outcome, Task


@dataclass(slots=True)
class Episode:
    """One trajectory while it is sampled: what was read so far, and the turns that were taken."""

    place: int
    group: int
    task: Task
    read: tuple[int, ...]
    said: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    ended: bool = True
    outcome: Outcome | None = None

    @property
    def name(self) -> str:
        """What its steps are known by."""
        return f"{self.group}.{self.place}"


@dataclass(frozen=True, slots=True)
class Chances:
    """What the numbers of a step are drawn from, for how many trajectories in all, and of how many tokens a turn."""

    seed: int
    step: int
    rows: int
    tokens: int

    def of_turn(self, turn: int) -> Float[Tensor, "B T"]:
        """A number from 0 to 1 for each token of each trajectory, whoever samples it."""
        return torch.rand(self.rows, self.tokens, generator=chance.generator(self.seed, "rollout", self.step, turn))


def opened(environment: Environment, text: Text, chances: Chances, *, prompts: int, responses: int) -> list[Episode]:
    """The episodes of one step, all responses to a prompt side by side."""
    tasks = [environment.task(chance.plain(chances.seed, "task", chances.step, n)) for n in range(prompts)]
    return [
        Episode(group * responses + copy, group, task, text.ids(task.prompt))
        for group, task in enumerate(tasks)
        for copy in range(responses)
    ]


def played(  # noqa: PLR0913 - who samples, who answers, in what text, and the chances
    episodes: Sequence[Episode],
    engine: Engine,
    environment: Environment,
    text: Text,
    *,
    turns: int,
    chances: Chances,
) -> None:
    """Take turns until every trajectory has its outcome.

    Raises:
        SentinelError: if the environment gives no outcome after the last turn.
    """
    for turn in range(turns):
        going = [e for e in episodes if e.outcome is None]
        if not going:
            break
        numbers = chances.of_turn(turn)[torch.tensor([e.place for e in going])]
        for episode, sampled in zip(going, engine.sample([e.read for e in going], numbers), strict=True):
            _taken(episode, sampled, environment, text)
    silent = next((e for e in episodes if e.outcome is None), None)
    if silent is not None:
        raise SentinelError(f"environment gave no outcome after turn {turns}, expected one: raise rollout.turns")


def laid(
    episodes: Sequence[Episode],
    *,
    merged: bool,
    padding: int,
    unended: Literal["train", "reject", "suppress"] = "train",
) -> Laid:
    """What was sampled as tensors, with the outcome of each trajectory on all its rows.

    A trajectory that did not end trains as it is judged, is rejected (no token of it trains), or trains with its
    outcome void.
    """
    outcome = {e.name: e.outcome for e in episodes if e.outcome is not None}
    whole = laid_out(
        [step for e in episodes for step in e.steps],
        reward={name: o.reward for name, o in outcome.items()},
        group={e.name: e.group for e in episodes},
        scored={e.name: e.ended or unended != "suppress" for e in episodes},
        merged=merged,
        padding=padding,
    )
    if unended != "reject":
        return whole
    ended = torch.tensor([e.ended for e in episodes])[whole.rollout.trajectory]
    rejected: Tensor = whole.rollout.mask & ended.unsqueeze(1)  # type: ignore[operator]  # laid out padded
    return replace(whole, rollout=replace(whole.rollout, mask=rejected))


def _taken(episode: Episode, sampled: Sampled, environment: Environment, text: Text) -> None:
    """One turn: what was said, and the answer to it."""
    episode.said.append(text.text(sampled.token))
    episode.ended = episode.ended and sampled.ended
    episode.versions.append(sampled.version)
    answer = environment.reply(episode.task, tuple(episode.said), ended=sampled.ended)
    size = len(sampled.token)
    step = Step(
        trajectory=episode.name,
        prompt=episode.read,
        response=sampled.token,
        trained=(True,) * size,
        token_reward=(0.0,) * size,
        logprob=sampled.logprob,
        last=isinstance(answer, Outcome),
    )
    episode.steps.append(step)
    if isinstance(answer, Outcome):
        episode.outcome = answer
    else:
        episode.read = episode.read + sampled.token + text.ids(answer)
