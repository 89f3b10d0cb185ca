"""The training loop: sample, build the training batch, update, log, save a checkpoint. Read it from top to bottom."""

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
from rl_sentinel.train.config.selection import Selection, select_components
from rl_sentinel.train.model.policy import Models, build_models, init_policy
from rl_sentinel.train.model.pretrained import load_policy, require_transformers
from rl_sentinel.train.rollout.episodes import (
    Episode,
    UniformDraws,
    attach_baselines,
    play_episodes,
    start_episodes,
)
from rl_sentinel.train.rollout.interfaces import Engine
from rl_sentinel.train.rollout.prefetch import Prefetcher, Weights
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.checkpoint import load_newest, save_checkpoint
from rl_sentinel.train.run.distributed import ALONE, Ranks
from rl_sentinel.train.run.failed_step import dump_failed_step
from rl_sentinel.train.run.fingerprint import fingerprint
from rl_sentinel.train.run.journal import Journal
from rl_sentinel.train.run.step_metrics import compute_step_metrics
from rl_sentinel.train.run.training_state import TrainingState
from rl_sentinel.train.run.warm_start import Cache, warm_start
from rl_sentinel.train.update.critic import CriticStepError, build_critic
from rl_sentinel.train.update.minibatch_gradient import NotFiniteError
from rl_sentinel.train.update.policy_update import learning_rate, require_finite_logprobs, update_policy
from rl_sentinel.train.update.training_batch import PathError, TrainingBatch, build_training_batch

#: Wraps the path, for twin runs.
PathWrapper = Callable[[Callable[..., Ready]], Callable[..., Ready]]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What the loop reports: warm-start steps (done, total), each step's metrics and timing, and messages."""

    warm_start: Callable[[int, int], None] = lambda _done, _total: None
    step: Callable[[Mapping[str, Any], Mapping[str, Any]], None] = lambda _metrics, _timing: None
    message: Callable[[str], None] = lambda _text: None


def train(
    recipe: Recipe,
    *,
    cache: Cache,
    callbacks: Callbacks | None = None,
    ranks: Ranks = ALONE,
    wrap_path: PathWrapper = lambda path: path,
) -> None:
    """Run a recipe to its last step; resume from the newest checkpoint if there is one.

    Args:
        recipe: the recipe.
        cache: the cache of warm starts, with the signature of ``audit.cache.kept``.
        callbacks: progress reports.
        ranks: this process among those that train together.
        wrap_path: wraps the path, for twin runs.

    Raises:
        SentinelError: one line on an error that the user can fix.
    """
    callbacks = callbacks or Callbacks()
    selection = select_components(recipe)
    selection = replace(selection, path=wrap_path(selection.path))
    torch.set_num_threads(recipe.threads or torch.get_num_threads())
    if recipe.policy.load:
        require_transformers()
    journal = Journal.open(recipe, ranks)
    try:
        shape = recipe.policy
        policy = load_policy(shape.load, precision=shape.precision) if shape.load else init_policy(recipe)
        warm_start(policy, selection.environment, recipe, cache=cache, progress=callbacks.warm_start)
        critic = build_critic(policy, recipe.critic)
        models = build_models(policy, recipe, ranks)
        engine = selection.engine(recipe.rollout, models.sampler, shared=models.sampler is models.policy)
        sample = partial(_sample, recipe, selection, models, engine, ranks)
        prefetcher = Prefetcher(sample, staleness=recipe.rollout.staleness)
        state = TrainingState.initial(recipe, models.policy, critic)
        run = Run(recipe, selection, models, state, journal, callbacks, ranks, prefetcher)
        with closing(prefetcher):
            _resume(run)
            while run.state.step < recipe.steps:
                _step(run)
    finally:
        journal.close()


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that a step needs."""

    recipe: Recipe
    selection: Selection
    models: Models
    state: TrainingState
    journal: Journal
    callbacks: Callbacks
    ranks: Ranks
    prefetcher: Prefetcher


def _step(run: Run) -> None:
    recipe, selection, state, ranks = run.recipe, run.selection, run.state, run.ranks
    start, step, coefficient = time.perf_counter(), state.step, state.controller.coefficient
    episodes = attach_baselines(ranks.gather(run.prefetcher.take(step)), unended=recipe.rollout.unended)
    sampled = time.perf_counter()
    try:
        batch, ready = build_training_batch(
            recipe,
            selection,
            run.models,
            episodes,
            step=step,
            kl_coefficient=coefficient,
            ranks=ranks,
            critic=state.critic,
        )
        for group in state.optimizer.param_groups:
            group["lr"] = learning_rate(recipe, step)
        result = update_policy(
            state.policy,
            state.optimizer,
            batch,
            selection=selection,
            recipe=recipe,
            coefficient=coefficient if recipe.kl is not None and recipe.kl.loss else 0.0,
            order=rng.torch_generator(recipe.seed, "order", step),
            ranks=ranks,
        )
        if _is_checkpoint_step(recipe, step + 1):
            require_finite_logprobs(state.policy, batch, recipe=recipe)
        critic_metrics = _fit_critic(run, batch, ready)
    except (PathError, NotFiniteError) as error:
        raise _dump(run, error) from error
    metrics = compute_step_metrics(recipe, episodes, batch, ready, result, step=step)
    metrics = {"step": step + 1, **metrics, **critic_metrics}
    timing = _timing(step + 1, start, sampled, int(batch.mask.sum()))
    run.journal.append(metrics, timing)
    state.controller = state.controller.after(metrics["kl"], samples=len(episodes))
    state.step = step + 1
    _publish(run)
    if _is_checkpoint_step(recipe, state.step):
        _save(run)
    run.callbacks.step(metrics, timing)


def _is_checkpoint_step(recipe: Recipe, step: int) -> bool:
    return step % recipe.checkpoint.every == 0 or step == recipe.steps


def _fit_critic(run: Run, batch: TrainingBatch, ready: Ready) -> dict[str, float]:
    """Fit the critic, if any, and return its metrics."""
    critic = run.state.critic
    if critic is None:
        return {}
    order = rng.torch_generator(run.recipe.seed, "critic", run.state.step)
    try:
        fit = critic.fit(batch.laid, ready, update=run.recipe.update, order=order)
    except CriticStepError as error:
        raise NotFiniteError(str(error), batch, error.rows, 0.0, {"critic": error.state}) from error
    return {"value_loss": fit.loss, "explained_variance": fit.explained_variance}


def _resume(run: Run) -> None:
    """Restore the newest intact checkpoint, and truncate the metrics to it."""
    run.ranks.barrier()
    journal, say = run.journal, run.callbacks.message
    loaded = load_newest(journal.checkpoints)
    for message in loaded.damaged:
        say(message)
    saved = loaded.state
    if saved is None:
        if journal.count_steps():
            say(f"no intact checkpoint in {journal.checkpoints}: repeating all {journal.count_steps()} steps")
        journal.truncate(None)
        _publish(run)
        return
    if saved.get("recipe") != fingerprint(run.recipe):
        raise SentinelError(
            f"the newest checkpoint in {journal.checkpoints} is of another recipe than recipe.json beside it, "
            "expected the same: name another folder with out=DIR"
        )
    run.state.restore(run.recipe, saved)
    journal.truncate(saved["mark"])
    for step, version, weights in saved["ahead"]:
        weights_of_version = _full_weights(run) if weights is None else weights
        run.prefetcher.submit(step, weights_of_version, version, until=run.recipe.steps)
    say(f"resuming after step {run.state.step} of {run.recipe.steps}")


def _save(run: Run) -> None:
    """Save an unsharded checkpoint from the first rank."""
    state = run.state.for_checkpoint(run.journal.position())
    state |= {"ahead": _pending(run), "recipe": fingerprint(run.recipe)}
    if run.ranks.is_first:
        save_checkpoint(run.journal.checkpoints, state, step=run.state.step, keep=run.recipe.checkpoint.keep)
    run.ranks.barrier()


def _publish(run: Run) -> None:
    """Publish the newest weights to the rollout engine."""
    run.prefetcher.publish(_full_weights(run), version=run.state.step, until=run.recipe.steps)


def _full_weights(run: Run) -> Mapping[str, Tensor]:
    """The unsharded weights; a copy if sampling runs ahead, since the update changes them in place."""
    weights = run.ranks.full_weights(run.models.policy.model)
    return {n: w.clone() for n, w in weights.items()} if run.recipe.rollout.staleness else weights


def _pending(run: Run) -> list[tuple[int, int, Weights]]:
    """The prefetched steps for a checkpoint; None stands for the newest weights, which the checkpoint has anyway."""
    pending = run.prefetcher.pending()
    return [(step, version, None if version == run.state.step else weights) for step, version, weights in pending]


def _sample(  # noqa: PLR0913 - the components, the engine, and the step
    recipe: Recipe,
    selection: Selection,
    models: Models,
    engine: Engine,
    ranks: Ranks,
    step: int,
    weights: Mapping[str, Tensor],
    version: int,
) -> list[Episode]:
    """Sample this rank's episodes of a step with the weights of a version."""
    rollout, environment, tokenizer = recipe.rollout, selection.environment, models.sampler.tokenizer
    engine.load(weights, version)
    draws = UniformDraws(recipe.seed, step, rollout.prompts * rollout.responses, rollout.tokens)
    start = partial(start_episodes, environment, tokenizer, draws, prompts=rollout.prompts)
    episodes = ranks.own_slice(start(responses=rollout.responses))
    if "reward_baseline" in selection.reads:
        episodes += ranks.own_slice(start(responses=1, greedy=True))
    play_episodes(episodes, engine, environment, tokenizer, turns=rollout.turns, draws=draws)
    return episodes


def _dump(run: Run, error: PathError | NotFiniteError) -> SentinelError:
    """Dump a failed step, and return the error that ends the run.

    Other ranks may not have failed, so no collective is called. With several ranks the dump has the sampler's weights,
    which are those before the step's first mini-batch.
    """
    step, rank = run.state.step + 1, "" if run.ranks.is_first else f"-rank-{run.ranks.rank}"
    place = run.journal.folder / f"stopped-{step:08d}{rank}.pt"
    model = run.models.sampler if run.ranks.size > 1 else run.models.policy
    message = f"step {step} stopped: {error}"
    try:
        dump_failed_step(place, error, recipe=run.recipe, weights=model.model.state_dict(), step=step)
    except OSError as full:
        return SentinelError(f"{message}; {place} cannot be written ({full.strerror}): make room to dump the step")
    return SentinelError(f"{message}; rl-sentinel train {place} repeats the step")


def _timing(step: int, start: float, sampled: float, tokens: int) -> dict[str, Any]:
    now = time.perf_counter()
    timing = {"rollout_seconds": sampled - start, "seconds": now - start, "tokens_per_second": tokens / (now - start)}
    return {"step": step, **{name: round(value, 6) for name, value in timing.items()}}
