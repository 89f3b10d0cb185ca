"""Episodes: draw tasks, sample the policy turn by turn, and lay the trajectories out as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.rollout import Laid, laid_out
from rl_sentinel.signal.trajectory_step import Step
from rl_sentinel.train.model.device import CPU
from rl_sentinel.train.model.policy import Tokenizer
from rl_sentinel.train.rollout.interfaces import Engine, Environment, Outcome, Request, Sampled, Task
from rl_sentinel.train.rollout.prompts import draw_task, encode_prompt, encode_text, require_length
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.stopwatch import Measure, unmeasured


@dataclass(slots=True)
class Episode:
    """One trajectory while it is sampled.

    ``row`` selects its uniform numbers; ``context`` is the prompt of its next turn. ``text`` is the prompt that the
    policy reads first; ``transcript`` is everything after it: responses and replies in turn. A ``greedy`` episode
    never trains; in a training step its reward is the ``baseline`` of the other episodes of its prompt.
    """

    row: int
    group: int
    task: Task
    context: tuple[int, ...]
    text: str = ""
    responses: list[str] = field(default_factory=list)
    transcript: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    ended: bool = True
    outcome: Outcome | None = None
    greedy: bool = False
    baseline: float | None = None

    @property
    def name(self) -> str:
        """The trajectory id of its steps."""
        return f"{self.group}.{self.row}"

    @property
    def failure(self) -> str:
        """Why the outcome has no reward; empty if it has one, or without an outcome."""
        return "" if self.outcome is None else self.outcome.failure


@dataclass(frozen=True, slots=True)
class UniformDraws:
    """The random numbers of a training step: for ``rows`` trajectories of at most ``tokens`` tokens per turn."""

    seed: int
    step: int
    rows: int
    tokens: int

    def for_turn(self, turn: int) -> Float[Tensor, "B T"]:
        """A number in [0, 1) per token and trajectory; the same on every rank."""
        source = rng.torch_generator(self.seed, "rollout", self.step, turn)
        return torch.rand(self.rows, self.tokens, generator=source, device=CPU)


def start_episodes(  # noqa: PLR0913 - where tasks come from, the random numbers, and how many of which kind
    environment: Environment,
    tokenizer: Tokenizer,
    draws: UniformDraws,
    *,
    prompts: int,
    responses: int,
    greedy: bool = False,
) -> list[Episode]:
    """Draw the tasks of a training step; the episodes of one prompt are adjacent.

    Raises:
        SentinelError: if a prompt is empty, cannot be encoded, or leaves no room for a response.
    """
    tasks = [draw_task(environment, draws.seed, draws.step, n, prompts=prompts) for n in range(prompts)]
    prompts_of_tasks = [encode_prompt(environment, tokenizer, task, draws.tokens) for task in tasks]
    return [
        Episode(group * responses + copy, group, task, ids, text, greedy=greedy)
        for group, (task, (text, ids)) in enumerate(zip(tasks, prompts_of_tasks, strict=True))
        for copy in range(responses)
    ]


def play_episodes(  # noqa: PLR0913 - who samples, who replies, and the random numbers
    episodes: Sequence[Episode],
    engine: Engine,
    environment: Environment,
    tokenizer: Tokenizer,
    *,
    turns: int,
    draws: UniformDraws,
    measure: Measure = unmeasured,
) -> None:
    """Play turns until every episode has its outcome; ``measure`` times the phases.

    Raises:
        SentinelError: if an episode has no outcome after the last turn, its context is too long, or its outcome has the
            wrong number of parts.
    """
    for turn in range(turns):
        if all(e.outcome is not None for e in episodes):
            break
        for greedy in (False, True):
            active = [e for e in episodes if e.outcome is None and e.greedy == greedy]
            if not active:
                continue
            uniform = draws.for_turn(turn)[torch.tensor([e.row for e in active], device=CPU)]
            with measure("sampling"):
                sampled = engine.sample([e.context for e in active], uniform, greedy=greedy)
            requests = [_record(e, response, tokenizer) for e, response in zip(active, sampled, strict=True)]
            with measure("rewards"):
                replies = _replies(environment, requests)
            for episode, response, reply in zip(active, sampled, replies, strict=True):
                _finish_turn(episode, response, reply, environment, tokenizer, tokens=draws.tokens)
    if any(e.outcome is None for e in episodes):
        raise SentinelError(
            f"the environment replied with a text in turn {turns}, expected an Outcome in the last turn: return "
            "an Outcome by then, or increase rollout.turns"
        )


def attach_baselines(episodes: Sequence[Episode], *, unended: Literal["train", "reject", "suppress"]) -> list[Episode]:
    """The episodes that train, each with the reward of its prompt's greedy episode; a suppressed reward counts as 0.

    The baseline is None without a greedy episode. If the reward of the greedy episode failed, so do the rewards of all
    episodes of this prompt.
    """
    greedy = {e.group: e for e in episodes if e.greedy}
    suppressed = {group for group, e in greedy.items() if unended == "suppress" and not e.ended}
    baseline = {
        group: 0.0 if group in suppressed else e.outcome.reward for group, e in greedy.items() if e.outcome is not None
    }
    for episode in episodes:
        episode.baseline = baseline.get(episode.group)
        failure = greedy[episode.group].failure if episode.group in greedy else ""
        if failure and episode.outcome is not None and not episode.failure:
            episode.outcome = replace(episode.outcome, failure=f"its greedy response: {failure}")
    return [e for e in episodes if not e.greedy]


def lay_out_episodes(
    episodes: Sequence[Episode],
    *,
    merged: bool,
    padding: int,
    unended: Literal["train", "reject", "suppress"] = "train",
) -> Laid:
    """Lay trajectories out as tensors, with each trajectory's outcome on all its rows.

    ``unended`` is the recipe's choice: train on a trajectory without an end, mask all its tokens, or suppress its
    reward. A trajectory whose reward failed is masked, too.
    """
    outcome = {e.name: e.outcome for e in episodes if e.outcome is not None}
    laid = laid_out(
        [step for e in episodes for step in e.steps],
        reward={name: o.reward for name, o in outcome.items()},
        group={e.name: e.group for e in episodes},
        scored={e.name: e.ended or unended != "suppress" for e in episodes},
        merged=merged,
        padding=padding,
        device=CPU,
    )
    rollout, trajectory = laid.rollout, laid.rollout.trajectory
    more: dict[str, Any] = {"token_reward": None, "turn": _turn_of_token(episodes, laid) if merged else None}
    if all(e.baseline is not None for e in episodes):
        more["reward_baseline"] = torch.tensor([e.baseline for e in episodes], device=CPU)[trajectory]
    if all(o.parts for o in outcome.values()):
        parts = [[float(x) for x in outcome[e.name].parts] for e in episodes]
        more["reward_parts"] = torch.tensor(parts, device=CPU)[trajectory]
    trains = [not e.failure and (e.ended or unended != "reject") for e in episodes]
    if not all(trains):
        more["mask"] = rollout.mask & torch.tensor(trains, device=CPU)[trajectory].unsqueeze(1)  # type: ignore[operator]  # laid out padded
    return replace(laid, rollout=replace(rollout, **more))


def _turn_of_token(episodes: Sequence[Episode], laid: Laid) -> Int[Tensor, "B T"]:
    """The turn, from 0, in which each token of merged rows was sampled; 0 for other tokens."""
    turn = torch.zeros(laid.rollout.mask.shape, dtype=torch.long, device=CPU)  # type: ignore[union-attr]  # laid out padded
    steps = iter([(number, step) for e in episodes for number, step in enumerate(e.steps)])
    for row, (start, size) in enumerate(zip(laid.prompt_length.tolist(), laid.length.tolist(), strict=True)):
        end = 0
        while end < start + size:  # a row ends with its last step
            number, step = next(steps)
            end = len(step.prompt) + len(step.response)
            if number:
                turn[row, len(step.prompt) - start : end - start] = number
    return turn


def _record(episode: Episode, sampled: Sampled, tokenizer: Tokenizer) -> Request:
    """Record one response, and return the request to the environment."""
    text = tokenizer.decode(sampled.token)
    episode.responses.append(text)
    episode.transcript.append(text)
    episode.ended = episode.ended and sampled.ended
    episode.versions.append(sampled.version)
    return Request(episode.task, tuple(episode.responses), sampled.ended)


def _replies(environment: Environment, requests: Sequence[Request]) -> list[str | Outcome]:
    """The environment's replies, all at once if it can."""
    together = getattr(environment, "replies", None)
    if together is None:
        return [environment.reply(r.task, r.responses, ended=r.ended) for r in requests]
    replies: list[str | Outcome] = together(requests)
    return replies


def _finish_turn(  # noqa: PLR0913 - the turn, who replied, and the limits
    episode: Episode,
    sampled: Sampled,
    reply: str | Outcome,
    environment: Environment,
    tokenizer: Tokenizer,
    *,
    tokens: int,
) -> None:
    """Record the environment's reply to a response."""
    size = len(sampled.token)
    step = Step(
        trajectory=episode.name,
        prompt=episode.context,
        response=sampled.token,
        trained=(True,) * size,
        token_reward=(0.0,) * size,
        logprob=sampled.logprob,
        last=isinstance(reply, Outcome),
    )
    episode.steps.append(step)
    if isinstance(reply, Outcome):
        parts = getattr(environment, "parts", ())
        if len(reply.parts) != len(parts):
            raise SentinelError(
                f"Outcome.parts of the environment has {len(reply.parts)} numbers, expected {len(parts)}, one per name "
                "in Environment.parts: name each part there, or return an Outcome with as many parts"
            )
        episode.outcome = reply
    else:
        episode.transcript.append(reply)
        episode.context = episode.context + sampled.token + encode_text(tokenizer, reply)
        require_length(tokenizer, len(episode.context), tokens, what="rollout.tokens", later=True)
