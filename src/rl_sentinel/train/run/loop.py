"""The loop, read from top to bottom: sample, judge, compute the signal, learn, write down."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.ready import Ready
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import Selection, selected
from rl_sentinel.train.model.policy import Models, from_scratch, spread
from rl_sentinel.train.model.pretrained import loaded, require_there
from rl_sentinel.train.rollout.episodes import Chances, Episode, compared, opened, played
from rl_sentinel.train.rollout.interfaces import Engine
from rl_sentinel.train.rollout.prefetch import Ahead, Weights
from rl_sentinel.train.run import checkpoint, failed_step, rng, warm_start
from rl_sentinel.train.run.distributed import ALONE, Ranks
from rl_sentinel.train.run.fingerprint import digest
from rl_sentinel.train.run.journal import Journal
from rl_sentinel.train.run.step_metrics import measured
from rl_sentinel.train.run.training_state import State
from rl_sentinel.train.update.critic import UnfittedError, critic_of
from rl_sentinel.train.update.policy_update import Batch, NotFiniteError, learned, rate, require_sound
from rl_sentinel.train.update.training_batch import prepared

#: From a path to one that is called in its place.
Around = Callable[[Callable[..., Ready]], Callable[..., Ready]]


@dataclass(frozen=True, slots=True)
class Watch:
    """Whom the loop tells: of the warm start's steps done and in all, of a step's numbers and times, and in words."""

    warming: Callable[[int, int], None] = lambda _done, _whole: None
    step: Callable[[Mapping[str, Any], Mapping[str, Any]], None] = lambda _seen, _spent: None
    say: Callable[[str], None] = lambda _words: None


def train(
    recipe: Recipe,
    *,
    kept: warm_start.Kept,
    watch: Watch | None = None,
    ranks: Ranks = ALONE,
    around: Around = lambda path: path,
) -> None:
    """Run a recipe to its end, from its newest checkpoint if there is one.

    Args:
        recipe: what is trained, on what, and how.
        kept: the cache of warm starts, called as ``audit.cache.kept`` is.
        watch: whom to tell.
        ranks: this process among those that train together.
        around: puts something around the path, for twin runs.

    Raises:
        SentinelError: one line on whatever of it the user can mend.
    """
    watch = watch or Watch()
    selection = selected(recipe)
    selection = replace(selection, path=around(selection.path))
    torch.set_num_threads(recipe.threads or torch.get_num_threads())
    if recipe.policy.load:
        require_there()
    journal = Journal.opened(recipe, ranks)
    try:
        shape = recipe.policy
        policy = loaded(shape.load, precision=shape.precision) if shape.load else from_scratch(recipe)
        warm_start.started(policy, selection.environment, recipe, kept=kept, told=watch.warming)
        critic = critic_of(policy, recipe.critic)
        models = spread(policy, recipe, ranks)
        engine = selection.engine(recipe.rollout, models.sampler, shared=models.sampler is models.policy)
        ahead = Ahead(partial(_sampled, recipe, selection, models, engine, ranks), staleness=recipe.rollout.staleness)
        run = Run(recipe, selection, models, State.first(recipe, models.policy, critic), journal, watch, ranks, ahead)
        with closing(ahead):
            _resume(run)
            while run.state.step < recipe.steps:
                _step(run)
    finally:
        journal.close()


@dataclass(frozen=True, slots=True)
class Run:
    """All that a run is."""

    recipe: Recipe
    selection: Selection
    models: Models
    state: State
    journal: Journal
    watch: Watch
    ranks: Ranks
    ahead: Ahead


def _step(run: Run) -> None:
    recipe, selection, state, ranks = run.recipe, run.selection, run.state, run.ranks
    began, step, price = time.perf_counter(), state.step, state.controller.coefficient
    episodes = compared(ranks.gathered(run.ahead.taken(step)), unended=recipe.rollout.unended)
    sampled = time.perf_counter()
    try:
        batch, ready = prepared(
            recipe, selection, run.models, episodes, step=step, price=price, ranks=ranks, critic=state.critic
        )
        for group in state.optimizer.param_groups:
            group["lr"] = rate(recipe, step)
        seen = learned(
            state.policy,
            state.optimizer,
            batch,
            selection=selection,
            recipe=recipe,
            coefficient=price if recipe.kl is not None and recipe.kl.loss else 0.0,
            order=rng.generator(recipe.seed, "order", step),
            ranks=ranks,
        )
        if _saves(recipe, step + 1):
            require_sound(state.policy, batch, recipe=recipe)
        fitted = _fitted(run, batch, ready)
    except (failed_step.UnfitError, NotFiniteError) as error:
        raise _stopped(run, error) from error
    told = {"step": step + 1, **measured(recipe, episodes, batch, ready, seen, step=step), **fitted}
    spent = _spent(step + 1, began, sampled, int(batch.mask.sum()))
    run.journal.wrote(told, spent)
    state.controller = state.controller.after(told["kl"], samples=len(episodes))
    state.step = step + 1
    _publish(run)
    if _saves(recipe, state.step):
        _save(run)
    run.watch.step(told, spent)


def _saves(recipe: Recipe, step: int) -> bool:
    """Whether there is a checkpoint after a step."""
    return step % recipe.checkpoint.every == 0 or step == recipe.steps


def _fitted(run: Run, batch: Batch, ready: Ready) -> dict[str, float]:
    """Fit the critic, if any, and tell its numbers."""
    critic = run.state.critic
    if critic is None:
        return {}
    order = rng.generator(run.recipe.seed, "critic", run.state.step)
    try:
        found = critic.fit(batch.laid, ready, how=run.recipe.update, order=order)
    except UnfittedError as error:
        raise NotFiniteError(str(error), batch, error.rows, 0.0, more={"critic": error.again}) from error
    return {"value_loss": found.loss, "explained_variance": found.explained}


def _resume(run: Run) -> None:
    """Go on from the newest checkpoint that is whole; the metrics are cut back to it."""
    run.ranks.wait()
    found = checkpoint.newest(run.journal.checkpoints)
    for words in found.damaged:
        run.watch.say(words)
    if found.state is None:
        if run.journal.told():
            run.watch.say(
                f"no whole checkpoint in {run.journal.checkpoints}: {run.journal.told()} steps are done again"
            )
        run.journal.back(None)
        _publish(run)
        return
    if found.state.get("recipe") != digest(run.recipe):
        raise SentinelError(
            f"the newest checkpoint in {run.journal.checkpoints} is of another recipe than recipe.json beside it, "
            "expected the same: name another folder with out=DIR"
        )
    run.state.restore(run.recipe, found.state)
    run.journal.back(found.state["mark"])
    for step, version, weights in found.state["ahead"]:
        run.ahead.ask(step, _whole(run) if weights is None else weights, version, until=run.recipe.steps)
    run.watch.say(f"going on after step {run.state.step} of {run.recipe.steps}")


def _save(run: Run) -> None:
    """A checkpoint, in one piece, from the first rank."""
    state = run.state.told(run.journal.mark()) | {"ahead": _outstanding(run), "recipe": digest(run.recipe)}
    if run.ranks.first:
        checkpoint.saved(run.journal.checkpoints, state, step=run.state.step, keep=run.recipe.checkpoint.keep)
    run.ranks.wait()


def _publish(run: Run) -> None:
    """Have the newest weights sample what is theirs."""
    run.ahead.publish(_whole(run), version=run.state.step, until=run.recipe.steps)


def _whole(run: Run) -> Mapping[str, Tensor]:
    """The weights in one piece; a copy, where they will have changed before they are used."""
    weights = run.ranks.whole(run.models.policy.model)
    return {n: w.clone() for n, w in weights.items()} if run.recipe.rollout.staleness else weights


def _outstanding(run: Run) -> list[tuple[int, int, Weights]]:
    """What is being sampled ahead, for a checkpoint; None stands for the newest weights, which it holds anyway."""
    every = run.ahead.outstanding()
    return [(step, version, None if version == run.state.step else weights) for step, version, weights in every]


def _sampled(  # noqa: PLR0913 - what is chosen, who samples, and when
    recipe: Recipe,
    selection: Selection,
    models: Models,
    engine: Engine,
    ranks: Ranks,
    step: int,
    weights: Mapping[str, Tensor],
    version: int,
) -> list[Episode]:
    """This rank's trajectories of a step, sampled by the weights of a version."""
    how, environment, text = recipe.rollout, selection.environment, models.sampler.text
    engine.load(weights, version)
    chances = Chances(recipe.seed, step, how.prompts * how.responses, how.tokens)
    own = ranks.share(opened(environment, text, chances, prompts=how.prompts, responses=how.responses))
    if "reward_baseline" in selection.reads:
        own += ranks.share(opened(environment, text, chances, prompts=how.prompts, responses=1, greedy=True))
    played(own, engine, environment, text, turns=how.turns, chances=chances)
    return own


def _stopped(run: Run, error: failed_step.UnfitError | NotFiniteError) -> SentinelError:
    """What is said of a step that cannot be, once its batch is kept; no other rank is asked, which may have gone on.

    The weights of several ranks are those that sampled: those before the step's first mini-batch.
    """
    rank = "" if run.ranks.first else f"-rank-{run.ranks.rank}"
    place = run.journal.folder / f"stopped-{run.state.step + 1:08d}{rank}.pt"
    model = run.models.sampler if run.ranks.size > 1 else run.models.policy
    words = f"step {run.state.step + 1} stopped: {error}"
    try:
        failed_step.kept(place, error, recipe=run.recipe, weights=model.model.state_dict(), step=run.state.step + 1)
    except OSError as full:
        return SentinelError(f"{words}; {place} cannot be written ({full.strerror}): make room to keep the step")
    return SentinelError(f"{words}; rl-sentinel train {place} does it again")


def _spent(step: int, began: float, sampled: float, tokens: int) -> dict[str, Any]:
    now = time.perf_counter()
    rounded = {"rollout_seconds": sampled - began, "seconds": now - began, "tokens_per_second": tokens / (now - began)}
    return {"step": step, **{name: round(value, 6) for name, value in rounded.items()}}
