"""Shared by the tests of the trainer: a recipe that runs in a second, environments, and a scripted engine."""

import inspect
import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor

import rl_sentinel.signal.advantage
import rl_sentinel.signal.loss
from rl_sentinel.core.modules import defined
from rl_sentinel.signal.loss import reinforce
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.reduce import Aggregation, aggregate
from rl_sentinel.train.config.recipe import Recipe, parse_recipe
from rl_sentinel.train.config.selection import Selection, select_components
from rl_sentinel.train.model.character_tokenizer import END, CharacterTokenizer
from rl_sentinel.train.model.policy import Models, Policy, init_policy
from rl_sentinel.train.rollout.episodes import Episode, UniformDraws, play_episodes, start_episodes
from rl_sentinel.train.rollout.interfaces import Outcome, Sampled, Task
from rl_sentinel.train.update.training_batch import TrainingBatch, build_training_batch

#: The recipe as TOML, for the command line.
TOML = """
out = "{out}"
steps = 2

[policy]
hidden = 16
layers = 1
heads = 2
inner = 16
positions = 32

[environment]
name = "training:Letter"

[rollout]
prompts = 2
responses = 4
tokens = 3

[estimator]
name = "grpo"
standardize = false
epsilon = 0.0

[loss]
name = "ppo"
clip_low = 0.2
clip_high = 0.2
aggregation = "token-mean"

[update]
prompts = 2
rate = 1e-2
"""


@dataclass(frozen=True, slots=True)
class Letter:
    """Repeat the letter of the prompt: random responses are partly right, so that there is something to reinforce."""

    letters: str = "ab"

    def task(self, rng: random.Random) -> Task:
        letter = rng.choice(self.letters)
        return Task(letter, letter)

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:  # noqa: ARG002 - part of the interface
        reward = responses[-1].count(task.answer) / 3
        return Outcome(reward, reward == 1)

    def warm(self, rng: random.Random) -> tuple[str, str, bool]:
        return rng.choice(self.letters), "=", True


@dataclass(frozen=True, slots=True)
class TwoParts(Letter):
    """The same with two reward parts: the letter, and whether the response ended."""

    parts: ClassVar[tuple[str, ...]] = ("letter", "ended")

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        reward = responses[-1].count(task.answer) / 3
        return Outcome(reward, reward == 1, parts=(reward, float(ended)))


@dataclass(frozen=True, slots=True)
class TwoTurns:
    """Two turns: ``|`` after the first; the reward is the length of the second response."""

    def task(self, rng: random.Random) -> Task:  # noqa: ARG002 - part of the interface
        return Task("ab", "")

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:  # noqa: ARG002 - part of the interface
        return "|" if len(responses) == 1 else Outcome(float(len(responses[1])), ended)


def returns_none(logprob: Tensor | None = None, reward: Tensor | None = None, *, aggregation: object = None) -> None:
    """A loss, or an estimator, without a return value."""


def unknown_column(reward: Tensor, mood: Tensor) -> Tensor:
    return reward * mood


def turn_weighted_loss(
    logprob: Tensor, advantage: Tensor, *, mask: Tensor, turn: Tensor, aggregation: Aggregation
) -> Tensor:
    return reinforce.loss(logprob, advantage * (1 + turn), mask=mask, aggregation=aggregation)


def divided_by_the_longest_row(
    logprob: Tensor, old_logprob: Tensor, advantage: Tensor, *, mask: Tensor, aggregation: Aggregation
) -> Tensor:
    """A policy gradient that is divided by the longest row of the mini-batch."""
    ratio = torch.where(mask, logprob - old_logprob, 0.0).exp()
    return aggregate(-ratio * advantage, mask=mask, aggregation=aggregation) / mask.sum(dim=1).max()


def scaled_by_the_largest(
    logprob: Tensor, old_logprob: Tensor, advantage: Tensor, *, mask: Tensor, aggregation: Aggregation
) -> Tensor:
    """A policy gradient whose advantages are divided by the largest of the mini-batch."""
    ratio = torch.where(mask, logprob - old_logprob, 0.0).exp()
    scaled = advantage / advantage.abs().max().clamp(min=1e-6)
    return aggregate(-ratio * scaled, mask=mask, aggregation=aggregation)


def not_additive(logprob: Tensor, advantage: Tensor, *, mask: Tensor, aggregation: Aggregation) -> Tensor:
    return reinforce.loss(logprob, advantage, mask=mask, aggregation=aggregation).square()


@dataclass
class ScriptedEngine:
    """An engine that returns the given texts in order, with log-prob -1 per token."""

    remote: ClassVar[bool] = False
    texts: list[str]
    version: int = 0
    contexts: list[tuple[int, ...]] = field(default_factory=list)

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Do nothing."""

    def sample(
        self,
        prompts: Sequence[tuple[int, ...]],
        uniform: Tensor,  # noqa: ARG002 - part of the interface
        *,
        greedy: bool = False,  # noqa: ARG002 - as above
    ) -> list[Sampled]:
        self.contexts += prompts
        responses = [(*CharacterTokenizer().encode(self.texts.pop(0)), END) for _ in prompts]
        return [Sampled(ids, (-1.0,) * len(ids), ended=True, version=0) for ids in responses]


def recipe(out: Path | str = "nowhere", **more: Any) -> Recipe:
    """The small recipe, with the given tables merged into its own."""
    tables: dict[str, Any] = {
        "out": str(out),
        "steps": 2,
        "policy": {"hidden": 16, "layers": 1, "heads": 2, "inner": 16, "positions": 32},
        "environment": {"name": "training:Letter"},
        "rollout": {"prompts": 2, "responses": 4, "tokens": 3},
        "estimator": {"name": "grpo", "standardize": False, "epsilon": 0.0},
        "loss": {"name": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregation": "token-mean"},
        "update": {"prompts": 2, "rate": 1e-2},
    }
    for key, value in more.items():
        table = tables.get(key)
        tables[key] = {**table, **value} if isinstance(table, dict) and "name" not in value else value
    return parse_recipe(tables, where="recipe test")


def folder_cache(home: Path) -> Callable[[str, str, Callable[[Path], None]], Path]:
    def folder_of(kind: str, key: str, make: Callable[[Path], None]) -> Path:
        place = home / kind / key
        if not place.exists():
            place.mkdir(parents=True)
            make(place)
        return place

    return folder_of


def sample_episodes(recipe: Recipe, *, step: int = 0) -> tuple[Selection, Policy, list[Episode]]:
    """Episodes of an untrained policy whose weights are scaled up, so that its samples differ."""
    from rl_sentinel.train.rollout.engine.process import Engine  # noqa: PLC0415 - for this function alone

    selection, policy = select_components(recipe), init_policy(recipe)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.mul_(3.0)
    rollout = recipe.rollout
    draws = UniformDraws(recipe.seed, step, rollout.prompts * rollout.responses, rollout.tokens)
    episodes = start_episodes(
        selection.environment, policy.tokenizer, draws, prompts=rollout.prompts, responses=rollout.responses
    )
    engine = Engine(policy, rollout.temperature, rollout.tokens)
    play_episodes(episodes, engine, selection.environment, policy.tokenizer, turns=rollout.turns, draws=draws)
    return selection, policy, episodes


def sample_batch(
    config: Recipe, *, reference: bool = False
) -> tuple[Selection, Policy, list[Episode], TrainingBatch, Ready]:
    """The same with their training batch; ``reference`` adds the policy as its own reference."""
    selection, policy, episodes = sample_episodes(config)
    models = Models(policy, policy, policy.frozen_copy() if reference else None)
    batch, ready = build_training_batch(config, selection, models, episodes, step=0, kl_coefficient=0.0)
    return selection, policy, episodes, batch, ready


def tables(package: ModuleType, attribute: str) -> list[dict[str, Any]]:
    """A recipe's table for each module of a package of ``signal``, with a value for each parameter."""
    result = []
    for name, function in defined(package, attribute).items():
        claims, wanted = inspect.unwrap(function).__globals__["CLAIMS"], inspect.signature(function).parameters.items()
        kinds = {key: {float: "1.5", int: "2", bool: "true"}.get(p.annotation) for key, p in wanted}
        texts = {key: claims.get(f"knob:{key}", kind) for key, kind in kinds.items() if kind}
        table = "\n".join(f"{key} = {text.partition('|')[0]}" for key, text in texts.items())
        more: dict[str, Any] = {"weight": (1.0, 0.5)} if "weight" in dict(wanted) else {}
        more |= {"chosen": {"name": "largest", "share": 0.3}} if "chosen" in dict(wanted) else {}
        result.append({"name": name, **tomllib.loads(table), **more})
    return result


#: Recipe settings for each module of ``signal.advantage`` and ``signal.loss``, with a critic for both kinds of GAE.
COMPONENTS: list[dict[str, Any]] = [
    {
        "estimator": table,
        **({"critic": {"rate": 0.1}} if "gae" in table["name"] else {}),
        **({"environment": {"name": "training:TwoParts"}} if "weight" in table else {}),
    }
    for table in tables(rl_sentinel.signal.advantage, "advantages")
] + [{"loss": {"aggregation": "token-mean", **table}} for table in tables(rl_sentinel.signal.loss, "loss")]


def component_name(choice: dict[str, Any]) -> str:
    return str(next(iter(choice.values()))["name"])
