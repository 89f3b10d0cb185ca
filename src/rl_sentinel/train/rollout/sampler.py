"""Sample the episodes of a step, or of an evaluation, with the weights of a version."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.settings import EvaluationSettings
from rl_sentinel.train.model.policy import Tokenizer
from rl_sentinel.train.rollout.episodes import Episode, UniformDraws, play_episodes, start_episodes
from rl_sentinel.train.rollout.interfaces import Engine, Environment
from rl_sentinel.train.rollout.prefetch import Weights
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.distributed import Ranks
from rl_sentinel.train.run.stopwatch import Measure, Stopwatch


@dataclass(frozen=True, slots=True)
class Sampler:
    """The engine with the environments that it plays.

    ``held_out`` is the environment of evaluations; ``greedy_too`` adds a greedy episode per prompt.
    """

    recipe: Recipe
    environment: Environment
    held_out: Environment | None
    tokenizer: Tokenizer
    engine: Engine
    ranks: Ranks
    stopwatch: Stopwatch
    greedy_too: bool

    def sample_step(self, step: int, weights: Weights, version: int) -> list[Episode]:
        """Load the weights, and sample this rank's episodes of a step."""
        assert weights is not None  # noqa: S101 - published before
        rollout, measure = self.recipe.rollout, self.stopwatch.measure(step)
        with measure("publish"):
            self._load(weights, version)
        draws = UniformDraws(self.recipe.seed, step, rollout.prompts * rollout.responses, rollout.tokens)
        start = partial(start_episodes, self.environment, self.tokenizer, draws, prompts=rollout.prompts)
        episodes = self.ranks.own_slice(start(responses=rollout.responses))
        if self.greedy_too:
            episodes += self.ranks.own_slice(start(responses=1, greedy=True))
        self._play(episodes, self.environment, draws, measure)
        return episodes

    def sample_evaluation(
        self, settings: EvaluationSettings, weights: Mapping[str, Tensor], version: int
    ) -> list[Episode]:
        """Sample this rank's episodes of an evaluation: a greedy one per held-out task, and the samples for pass@k.

        The tasks and random numbers depend neither on the step nor on the seed, so that evaluations can be compared.
        """
        held_out = self.held_out
        assert held_out is not None  # noqa: S101 - built with the settings
        self._load(weights, version)
        tasks = min(settings.tasks, getattr(held_out, "size", settings.tasks))
        rows = tasks * max(1, settings.responses)
        draws = UniformDraws(rng.derive_seed("evaluation"), 0, rows, self.recipe.rollout.tokens)
        start = partial(start_episodes, held_out, self.tokenizer, draws, prompts=tasks)
        episodes = self.ranks.own_slice(start(responses=1, greedy=True))
        if settings.responses:
            episodes += self.ranks.own_slice(start(responses=settings.responses))
        self._play(episodes, held_out, draws, None)
        return episodes

    def _load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Give the engine new weights; if all ranks sample from one server, only the first rank sends them."""
        if not self.engine.remote or self.ranks.size == 1:
            self.engine.load(weights, version)
            return
        self.ranks.barrier(self.ranks.sampling)  # the others may still sample with the earlier weights
        if self.ranks.is_first:
            self.engine.load(weights, version)
        else:
            for _ in weights.values():  # each is gathered from all ranks
                pass
            self.engine.version = version
        self.ranks.barrier(self.ranks.sampling)

    def _play(
        self, episodes: list[Episode], environment: Environment, draws: UniformDraws, measure: Measure | None
    ) -> None:
        measured = {} if measure is None else {"measure": measure}
        turns = self.recipe.rollout.turns
        play_episodes(episodes, self.engine, environment, self.tokenizer, turns=turns, draws=draws, **measured)
