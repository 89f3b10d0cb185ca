"""The loop, read from top to bottom: sample, judge, compute the signal, learn, write down."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train import chance, checkpoint, evidence, supervised
from rl_sentinel.train.engine.process import Engine
from rl_sentinel.train.episodes import Chances, Episode, opened, played
from rl_sentinel.train.journal import Journal
from rl_sentinel.train.measures import measured
from rl_sentinel.train.policy import Models, from_scratch
from rl_sentinel.train.preparation import prepared
from rl_sentinel.train.recipe import Recipe
from rl_sentinel.train.selection import Selection, selected
from rl_sentinel.train.state import State
from rl_sentinel.train.update import NotFiniteError, learned, rate


@dataclass(frozen=True, slots=True)
class Watch:
    """Whom the loop tells: of the warm start's steps done and in all, of a step's numbers and times, and in words."""

    warming: Callable[[int, int], None] = lambda _done, _whole: None
    step: Callable[[Mapping[str, Any], Mapping[str, Any]], None] = lambda _seen, _spent: None
    say: Callable[[str], None] = lambda _words: None


def train(recipe: Recipe, *, kept: supervised.Kept, watch: Watch | None = None) -> None:
    """Run a recipe to its end, from its newest checkpoint if there is one.

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
        models = Models(policy, None if recipe.kl is None else policy.copied())
        state = State.first(recipe, policy)
        _resume(recipe, state, journal, watch)
        while state.step < recipe.steps:
            _step(recipe, selection, models, state, journal, watch)
    finally:
        journal.close()


def _step(  # noqa: PLR0913 - all that a run is
    recipe: Recipe, selection: Selection, models: Models, state: State, journal: Journal, watch: Watch
) -> None:
    began, step, price = time.perf_counter(), state.step, state.controller.coefficient
    episodes = _sampled(recipe, selection, state)
    sampled = time.perf_counter()
    try:
        batch, ready = prepared(recipe, selection, models, episodes, step=step, price=price)
        for group in state.optimizer.param_groups:
            group["lr"] = rate(recipe, step)
        seen = learned(
            state.policy,
            state.optimizer,
            batch,
            selection=selection,
            recipe=recipe,
            coefficient=price if recipe.kl is not None and recipe.kl.loss else 0.0,
            order=chance.generator(recipe.seed, "order", step),
        )
    except (evidence.UnfitError, NotFiniteError) as error:
        raise _stopped(recipe, state, journal, error) from error
    told = {"step": step + 1, **measured(recipe, episodes, batch, ready, seen)}
    spent = _spent(step + 1, began, sampled, int(batch.mask.sum()))
    journal.wrote(told, spent)
    state.controller = state.controller.after(told["kl"], samples=len(episodes))
    state.step = step + 1
    if state.step % recipe.checkpoint.every == 0 or state.step == recipe.steps:
        checkpoint.saved(journal.checkpoints, state.told(journal.mark()), step=state.step, keep=recipe.checkpoint.keep)
    watch.step(told, spent)


def _resume(recipe: Recipe, state: State, journal: Journal, watch: Watch) -> None:
    """Go on from the newest checkpoint that is whole; the metrics are cut back to it."""
    found = checkpoint.newest(journal.checkpoints)
    for words in found.damaged:
        watch.say(words)
    if found.state is None:
        journal.back(None)
        return
    state.restore(recipe, found.state)
    journal.back(found.state["mark"])
    watch.say(f"going on after step {state.step} of {recipe.steps}")


def _sampled(recipe: Recipe, selection: Selection, state: State) -> list[Episode]:
    """The trajectories of a step."""
    how, environment, text = recipe.rollout, selection.environment, state.policy.text
    engine = Engine(state.policy, how.temperature, how.tokens, version=state.step)
    chances = Chances(recipe.seed, state.step, how.tokens)
    episodes = opened(environment, text, chances, prompts=how.prompts, responses=how.responses)
    played(episodes, engine, environment, text, turns=how.turns, chances=chances)
    return episodes


def _stopped(
    recipe: Recipe, state: State, journal: Journal, error: evidence.UnfitError | NotFiniteError
) -> SentinelError:
    """What is said of a step that cannot be, once its batch is kept."""
    place = journal.folder / f"stopped-{state.step + 1:08d}.pt"
    evidence.kept(place, error, recipe=recipe, policy=state.policy, step=state.step + 1)
    return SentinelError(f"step {state.step + 1} stopped: {error}; rl-sentinel train {place} does it again")


def _spent(step: int, began: float, sampled: float, tokens: int) -> dict[str, Any]:
    now = time.perf_counter()
    rounded = {"rollout_seconds": sampled - began, "seconds": now - began, "tokens_per_second": tokens / (now - began)}
    return {"step": step, **{name: round(value, 6) for name, value in rounded.items()}}
