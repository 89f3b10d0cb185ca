"""The loop, read from top to bottom: sample, judge, compute the signal, learn, write down."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rl_sentinel.train import chance, supervised
from rl_sentinel.train.engine.process import Engine
from rl_sentinel.train.episodes import Chances, Episode, opened, played
from rl_sentinel.train.journal import Journal
from rl_sentinel.train.measures import measured
from rl_sentinel.train.policy import Models, Policy, from_scratch
from rl_sentinel.train.preparation import prepared
from rl_sentinel.train.recipe import Recipe, Update
from rl_sentinel.train.selection import Selection, selected
from rl_sentinel.train.update import learned, rate


@dataclass(frozen=True, slots=True)
class Watch:
    """Whom the loop tells: of the warm start's steps done and in all, and of a step's numbers and times."""

    warming: Callable[[int, int], None] = lambda _done, _whole: None
    step: Callable[[Mapping[str, Any], Mapping[str, Any]], None] = lambda _seen, _spent: None


def train(recipe: Recipe, *, kept: supervised.Kept, watch: Watch | None = None) -> None:
    """Run a recipe to its end.

    Args:
        recipe: what is trained, on what, and how.
        kept: the cache of warm starts, called as ``audit.cache.kept`` is.
        watch: whom to tell.

    Raises:
        SentinelError: one line on whatever of it the user can mend.
    """
    watch = watch or Watch()
    selection = selected(recipe)
    torch.set_num_threads(recipe.threads or torch.get_num_threads())
    journal = Journal.opened(recipe)
    try:
        policy = from_scratch(recipe)
        supervised.started(policy, selection.environment, recipe, kept=kept, told=watch.warming)
        _learn(recipe, selection, policy, journal, watch)
    finally:
        journal.close()


def _learn(recipe: Recipe, selection: Selection, policy: Policy, journal: Journal, watch: Watch) -> None:
    models = Models(policy, None if recipe.kl is None else policy.copied())
    optimizer = optimized(policy, recipe.update)
    engine = Engine(policy, recipe.rollout.temperature, recipe.rollout.tokens)
    journal.back(None)
    for step in range(recipe.steps):
        began = time.perf_counter()
        episodes = _sampled(recipe, selection, engine, policy, step)
        sampled = time.perf_counter()
        batch, ready = prepared(recipe, selection, models, episodes, step)
        for group in optimizer.param_groups:
            group["lr"] = rate(recipe, step)
        seen = learned(
            policy,
            optimizer,
            batch,
            selection=selection,
            recipe=recipe,
            coefficient=0.0 if recipe.kl is None else recipe.kl.loss,
            order=chance.generator(recipe.seed, "order", step),
        )
        engine.version += 1
        told = {"step": step + 1, **measured(recipe, episodes, batch, ready, seen)}
        spent = _spent(step + 1, began, sampled, int(batch.mask.sum()))
        journal.wrote(told, spent)
        watch.step(told, spent)


def optimized(policy: Policy, how: Update) -> torch.optim.Optimizer:
    """The optimizer of a policy's weights."""
    return torch.optim.AdamW(policy.model.parameters(), lr=how.rate, betas=how.betas, weight_decay=how.decay)


def _sampled(recipe: Recipe, selection: Selection, engine: Engine, policy: Policy, step: int) -> list[Episode]:
    """The trajectories of a step."""
    how = recipe.rollout
    chances = Chances(recipe.seed, step, how.tokens)
    environment, text = selection.environment, policy.text
    episodes = opened(environment, text, chances, prompts=how.prompts, responses=how.responses)
    played(episodes, engine, environment, text, turns=how.turns, chances=chances)
    return episodes


def _spent(step: int, began: float, sampled: float, tokens: int) -> dict[str, Any]:
    now = time.perf_counter()
    rounded = {"rollout_seconds": sampled - began, "seconds": now - began, "tokens_per_second": tokens / (now - began)}
    return {"step": step, **{name: round(value, 6) for name, value in rounded.items()}}
