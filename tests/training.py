"""What the tests of the trainer share: a recipe that runs in a second, environments, an engine with a script."""

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
from rl_sentinel.signal.reduce import Aggregation
from rl_sentinel.train.characters import END, Characters
from rl_sentinel.train.episodes import Chances, Episode, opened, played
from rl_sentinel.train.policy import Policy, from_scratch
from rl_sentinel.train.recipe import Recipe, made
from rl_sentinel.train.sampling import Sampled
from rl_sentinel.train.selection import Selection, selected
from rl_sentinel.train.task import Outcome, Task

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
standardise = false
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
    """Say the letter that was read: partly right already by chance, so that there is something to reinforce."""

    letters: str = "ab"

    def task(self, chance: random.Random) -> Task:
        """One letter."""
        letter = chance.choice(self.letters)
        return Task(letter, letter)

    def reply(self, task: Task, said: Sequence[str], *, ended: bool) -> str | Outcome:  # noqa: ARG002 - asked with it
        """The share of the right letter in what was said."""
        reward = said[-1].count(task.answer) / 3
        return Outcome(reward, reward == 1)

    def warm(self, chance: random.Random) -> tuple[str, str, bool]:
        """A sign, whatever the letter."""
        return chance.choice(self.letters), "=", True


@dataclass(frozen=True, slots=True)
class Marked(Letter):
    """The same in two parts: the letter, and whether the response ended."""

    parts: ClassVar[tuple[str, ...]] = ("letter", "ended")

    def reply(self, task: Task, said: Sequence[str], *, ended: bool) -> str | Outcome:
        """The share of the right letter is the whole reward."""
        reward = said[-1].count(task.answer) / 3
        return Outcome(reward, reward == 1, parts=(reward, float(ended)))


@dataclass(frozen=True, slots=True)
class Twice:
    """Two turns: whatever is said is answered by ``|``, then judged by the second turn's length."""

    def task(self, chance: random.Random) -> Task:  # noqa: ARG002 - asked with it
        """Nothing to choose."""
        return Task("ab", "")

    def reply(self, task: Task, said: Sequence[str], *, ended: bool) -> str | Outcome:  # noqa: ARG002 - asked with it
        """A bar after the first turn."""
        return "|" if len(said) == 1 else Outcome(float(len(said[1])), ended)


def empty_loss(logprob: Tensor | None = None, reward: Tensor | None = None, *, aggregation: object = None) -> None:
    """A loss, or an estimator, that forgets to return anything."""


def unmade(reward: Tensor, mood: Tensor) -> Tensor:
    """An estimator that wants a column which nobody makes."""
    return reward * mood


def of_turns(logprob: Tensor, advantage: Tensor, *, mask: Tensor, turn: Tensor, aggregation: Aggregation) -> Tensor:
    """A loss to which a later turn counts more."""
    return reinforce.loss(logprob, advantage * (1 + turn), mask=mask, aggregation=aggregation)


@dataclass
class Scripted:
    """An engine that says given texts, in order, with log-prob -1 for each token."""

    texts: list[str]
    read: list[tuple[int, ...]] = field(default_factory=list)

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """A script has no weights."""

    def sample(
        self,
        prompts: Sequence[tuple[int, ...]],
        chance: Tensor,  # noqa: ARG002 - asked with it
        *,
        greedy: bool = False,  # noqa: ARG002 - as above
    ) -> list[Sampled]:
        """The next texts; each ends."""
        self.read += prompts
        said = [(*Characters().ids(self.texts.pop(0)), END) for _ in prompts]
        return [Sampled(ids, (-1.0,) * len(ids), ended=True, version=0) for ids in said]


def recipe(out: Path | str = "nowhere", **more: Any) -> Recipe:
    """The small recipe; tables given are merged into its own."""
    told: dict[str, Any] = {
        "out": str(out),
        "steps": 2,
        "policy": {"hidden": 16, "layers": 1, "heads": 2, "inner": 16, "positions": 32},
        "environment": {"name": "training:Letter"},
        "rollout": {"prompts": 2, "responses": 4, "tokens": 3},
        "estimator": {"name": "grpo", "standardise": False, "epsilon": 0.0},
        "loss": {"name": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregation": "token-mean"},
        "update": {"prompts": 2, "rate": 1e-2},
    }
    for key, value in more.items():
        there = told.get(key)
        told[key] = {**there, **value} if isinstance(there, dict) and "name" not in value else value
    return made(told, where="recipe test")


def kept_in(home: Path) -> Callable[[str, str, Callable[[Path], None]], Path]:
    """A cache of plain folders."""

    def kept(kind: str, key: str, make: Callable[[Path], None]) -> Path:
        place = home / kind / key
        if not place.exists():
            place.mkdir(parents=True)
            make(place)
        return place

    return kept


def sampled(wanted: Recipe, *, step: int = 0) -> tuple[Selection, Policy, list[Episode]]:
    """Trajectories of an untrained policy whose logits are far apart, so that its samples differ."""
    from rl_sentinel.train.engine.process import Engine  # noqa: PLC0415 - what is under test elsewhere

    selection, policy = selected(wanted), from_scratch(wanted)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.mul_(3.0)
    how = wanted.rollout
    chances = Chances(wanted.seed, step, how.prompts * how.responses, how.tokens)
    episodes = opened(selection.environment, policy.text, chances, prompts=how.prompts, responses=how.responses)
    engine = Engine(policy, how.temperature, how.tokens)
    played(episodes, engine, selection.environment, policy.text, turns=how.turns, chances=chances)
    return selection, policy, episodes


def tables(package: ModuleType, attribute: str) -> list[dict[str, Any]]:
    """A recipe's table for each module of a package of signal: its name, and a number wherever it wants one."""
    found = []
    for name, function in defined(package, attribute).items():
        claims, wanted = inspect.unwrap(function).__globals__["CLAIMS"], inspect.signature(function).parameters.items()
        kinds = {key: {float: "1.5", int: "2", bool: "true"}.get(p.annotation) for key, p in wanted}
        texts = {key: claims.get(f"knob:{key}", kind) for key, kind in kinds.items() if kind}
        told = "\n".join(f"{key} = {text.partition('|')[0]}" for key, text in texts.items())
        more: dict[str, Any] = {"weight": (1.0, 0.5)} if "weight" in dict(wanted) else {}
        more |= {"chosen": {"name": "largest", "share": 0.3}} if "chosen" in dict(wanted) else {}
        found.append({"name": name, **tomllib.loads(told), **more})
    return found


#: A choice for each module of ``signal.advantage`` and ``signal.loss``; both kinds of GAE read values.
CHOICES: list[dict[str, Any]] = [
    {
        "estimator": told,
        **({"critic": {"rate": 0.1}} if "gae" in told["name"] else {}),
        **({"environment": {"name": "training:Marked"}} if "weight" in told else {}),
    }
    for told in tables(rl_sentinel.signal.advantage, "advantages")
] + [{"loss": {"aggregation": "token-mean", **told}} for told in tables(rl_sentinel.signal.loss, "loss")]


def name_of(choice: dict[str, Any]) -> str:
    """The module that is chosen."""
    return str(next(iter(choice.values()))["name"])
