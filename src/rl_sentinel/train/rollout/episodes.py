"""Trajectories: tasks are set, the policy answers turn by turn, and what came of it is laid out for the signal."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.merging import Step
from rl_sentinel.signal.rollout import Laid, laid_out
from rl_sentinel.train.model.policy import Text
from rl_sentinel.train.rollout.interfaces import Engine, Environment, Outcome, Sampled, Task
from rl_sentinel.train.run import rng


@dataclass(slots=True)
class Episode:
    """One trajectory while it is sampled: what was read so far, and the turns that were taken.

    A ``greedy`` one never trains; the others to its prompt have its reward as ``baseline``.
    """

    place: int
    group: int
    task: Task
    read: tuple[int, ...]
    said: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    ended: bool = True
    outcome: Outcome | None = None
    greedy: bool = False
    baseline: float | None = None

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
        return torch.rand(self.rows, self.tokens, generator=rng.generator(self.seed, "rollout", self.step, turn))


def opened(  # noqa: PLR0913 - who asks, in what text, the chances, and how many of what kind
    environment: Environment, text: Text, chances: Chances, *, prompts: int, responses: int, greedy: bool = False
) -> list[Episode]:
    """The episodes of one step, all responses to a prompt side by side.

    Raises:
        SentinelError: if a prompt is empty, holds what the text cannot say, or leaves no room for a response.
    """
    tasks = [environment.task(rng.plain(chances.seed, "task", chances.step, n)) for n in range(prompts)]
    read = [_ids(text, task.prompt) for task in tasks]
    for task, ids in zip(tasks, read, strict=True):
        if not ids:
            raise SentinelError(f"environment gave the prompt {task.prompt!r}, expected one or more tokens to read")
        require_room(text, len(ids), chances.tokens, what="rollout.tokens")
    return [
        Episode(group * responses + copy, group, task, ids, greedy=greedy)
        for group, (task, ids) in enumerate(zip(tasks, read, strict=True))
        for copy in range(responses)
    ]


def require_room(text: Text, read: int, tokens: int, *, what: str) -> None:
    """Refuse a sequence that is longer than a model reads.

    Args:
        text: of the model.
        read: tokens of the prompt.
        tokens: tokens that may follow.
        what: what says so.

    Raises:
        SentinelError: naming both.

    Example:
        >>> from rl_sentinel.train.model.character_tokenizer import Characters
        >>> from rl_sentinel.train.rollout.episodes import require_room
        >>> require_room(Characters(positions=8), 6, 2, what="rollout.tokens")
    """
    if text.positions is not None and read + tokens > text.positions:
        raise SentinelError(
            f"{what} is {tokens} behind a prompt of {read} tokens, expected at most {text.positions} in all: "
            "lower it, or take more policy.positions (of a policy.load they are the model's own)"
        )


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
        SentinelError: if the environment gives no outcome after the last turn, or not the parts of one that it named.
    """
    for turn in range(turns):
        if all(e.outcome is not None for e in episodes):
            break
        for greedy in (False, True):
            going = [e for e in episodes if e.outcome is None and e.greedy == greedy]
            if not going:
                continue
            numbers = chances.of_turn(turn)[torch.tensor([e.place for e in going])]
            found = engine.sample([e.read for e in going], numbers, greedy=greedy)
            for episode, sampled in zip(going, found, strict=True):
                _taken(episode, sampled, environment, text, tokens=chances.tokens)
    silent = next((e for e in episodes if e.outcome is None), None)
    if silent is not None:
        raise SentinelError(f"environment gave no outcome after turn {turns}, expected one: raise rollout.turns")


def compared(episodes: Sequence[Episode], *, unended: Literal["train", "reject", "suppress"]) -> list[Episode]:
    """Those that train, each with the reward of the greedy one to its prompt, if there is one; void is 0."""
    got = {e.group: e for e in episodes if e.greedy}
    void = {group for group, e in got.items() if unended == "suppress" and not e.ended}
    told = {group: 0.0 if group in void else e.outcome.reward for group, e in got.items() if e.outcome is not None}
    for episode in episodes:
        episode.baseline = told.get(episode.group)
    return [e for e in episodes if not e.greedy]


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
    rollout, whose = whole.rollout, whole.rollout.trajectory
    more: dict[str, Any] = {"token_reward": None, "turn": _turns(episodes, whole) if merged else None}
    if all(e.baseline is not None for e in episodes):
        more["reward_baseline"] = torch.tensor([e.baseline for e in episodes])[whose]
    if all(o.parts for o in outcome.values()):
        more["reward_parts"] = torch.tensor([[float(x) for x in outcome[e.name].parts] for e in episodes])[whose]
    if unended == "reject":
        ended = torch.tensor([e.ended for e in episodes])[whose]
        more["mask"] = rollout.mask & ended.unsqueeze(1)  # type: ignore[operator]  # as below
    return replace(whole, rollout=replace(rollout, **more))


def _ids(text: Text, words: str) -> tuple[int, ...]:
    """The ids of what an environment says."""
    try:
        return text.ids(words)
    except SentinelError as error:
        raise SentinelError(
            f"environment gave what cannot be read ({error}): say it otherwise, or take a policy.load"
        ) from error


def _turns(episodes: Sequence[Episode], whole: Laid) -> Int[Tensor, "B T"]:
    """The turn in which each token of merged rows was said, counted from 0; 0 where none was."""
    found = torch.zeros(whole.rollout.mask.shape, dtype=torch.long)  # type: ignore[union-attr]  # laid out padded
    steps = iter([(number, step) for e in episodes for number, step in enumerate(e.steps)])
    for row, (start, size) in enumerate(zip(whole.prompt_length.tolist(), whole.length.tolist(), strict=True)):
        end = 0
        while end < start + size:  # a row ends with its last step
            number, step = next(steps)
            end = len(step.prompt) + len(step.response)
            found[row, len(step.prompt) - start : end - start] = number
    return found


def _taken(episode: Episode, sampled: Sampled, environment: Environment, text: Text, *, tokens: int) -> None:
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
        parts = getattr(environment, "parts", ())
        if len(answer.parts) != len(parts):
            got = f"environment gave {len(answer.parts)} parts of a reward"
            raise SentinelError(f"{got}, expected {len(parts)}, one for each of Environment.parts")
        episode.outcome = answer
    else:
        episode.read = episode.read + sampled.token + _ids(text, answer)
        require_room(text, len(episode.read), tokens, what="rollout.tokens")
