"""The training loop: sample, build the training batch, update, log, save a checkpoint. Read it from top to bottom."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.ready import Ready
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import require_one_process, select_components
from rl_sentinel.train.model.device import resolve_device
from rl_sentinel.train.model.lora import apply_lora, require_peft
from rl_sentinel.train.model.policy import build_models
from rl_sentinel.train.model.pretrained import require_folder, require_transformers
from rl_sentinel.train.rollout.chat import apply_chat
from rl_sentinel.train.rollout.episodes import Episode, attach_baselines
from rl_sentinel.train.rollout.prefetch import Prefetcher
from rl_sentinel.train.rollout.prompts import require_room
from rl_sentinel.train.rollout.sampler import Sampler
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.checkpoint_writer import CheckpointWriter
from rl_sentinel.train.run.completions import completion_lines
from rl_sentinel.train.run.distributed import ALONE, Ranks
from rl_sentinel.train.run.evaluation import evaluation_metrics
from rl_sentinel.train.run.failed_step import dump_failed_step
from rl_sentinel.train.run.fingerprint import weights_digest
from rl_sentinel.train.run.journal import Journal
from rl_sentinel.train.run.persistence import full_weights, publish_weights, resume_run, save_run
from rl_sentinel.train.run.recipe_files import code_digests, template_digest
from rl_sentinel.train.run.run_context import Callbacks, Run
from rl_sentinel.train.run.step_metrics import compute_step_metrics
from rl_sentinel.train.run.stopwatch import Stopwatch
from rl_sentinel.train.run.trained_policy import build_policy, is_run
from rl_sentinel.train.run.training_state import TrainingState
from rl_sentinel.train.run.warm_start import Cache, warm_start
from rl_sentinel.train.update.critic import CriticStepError, build_critic
from rl_sentinel.train.update.minibatch_gradient import NotFiniteError
from rl_sentinel.train.update.policy_update import UpdateResult, learning_rate, require_finite_logprobs, update_policy
from rl_sentinel.train.update.training_batch import PathError, TrainingBatch, build_training_batch

#: Wraps the path of a selection, for twin runs.
PathWrapper = Callable[[Callable[..., Ready]], Callable[..., Ready]]


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
        cache: the cache of warm starts, with the signature of ``audit.source.cache.cached_folder``.
        callbacks: progress reports.
        ranks: this process among all that train together.
        wrap_path: wraps the path of the selection, for twin runs.

    Raises:
        SentinelError: one line on an error that the user can fix.
    """
    callbacks = callbacks or Callbacks()
    selection = select_components(recipe)
    require_one_process(selection, recipe, ranks.size)
    selection = replace(selection, path=wrap_path(selection.path))
    torch.set_num_threads(recipe.threads or torch.get_num_threads())
    resolve_device(recipe.policy.device)
    if recipe.policy.load and not is_run(recipe.policy.load):
        require_folder(recipe.policy.load)
        require_transformers("policy.load")
    if recipe.policy.lora is not None:
        require_peft()
    journal = Journal.open(recipe, ranks)
    try:
        callbacks.opened(journal.folder, selection)
        policy = build_policy(recipe)
        loaded = weights_digest(policy.model) if recipe.policy.load else ""
        warm_start(policy, selection.environment, recipe, cache=cache, progress=callbacks.warm_start)
        critic = build_critic(policy, recipe.critic, recompute=recipe.policy.recompute)
        apply_lora(policy, recipe.policy.lora, seed=recipe.seed)
        models = build_models(policy, recipe, ranks)
        engine = selection.engine(recipe.rollout, models.sampler, shared=models.sampler is models.policy)
        stopwatch, greedy_too = Stopwatch(), "reward_baseline" in selection.reads
        tokenizer = policy.tokenizer
        environment = apply_chat(selection.environment, recipe.chat, tokenizer)
        held_out = apply_chat(selection.held_out, recipe.chat, tokenizer)
        require_room(environment, tokenizer, recipe)
        sampler = Sampler(recipe, environment, held_out, tokenizer, engine, ranks, stopwatch, greedy_too)
        prefetcher = Prefetcher(sampler.sample_step, staleness=recipe.rollout.staleness)
        state = TrainingState.initial(recipe, models.policy, critic)
        writer = CheckpointWriter(background=recipe.checkpoint.background)
        files = template_digest(recipe), code_digests(recipe), loaded
        progress = sampler, prefetcher, stopwatch, writer
        run = Run(recipe, selection, models, state, journal, callbacks, ranks, *progress, *files)
        with closing(writer), closing(prefetcher):
            resume_run(run)
            if run.state.step == 0:
                _evaluate(run)
            while run.state.step < recipe.steps:
                _step(run)
    finally:
        journal.close()


def _step(run: Run) -> None:
    """Sample, train, log, publish the weights, evaluate and save a checkpoint."""
    recipe, state, ranks = run.recipe, run.state, run.ranks
    start, step = time.perf_counter(), state.step
    measure = run.stopwatch.measure(step)
    episodes = attach_baselines(ranks.gather(run.prefetcher.take(step)), unended=recipe.rollout.unended)
    _report_failures(run, episodes)
    sampled = time.perf_counter()
    try:
        batch, ready = build_training_batch(
            recipe,
            run.selection,
            run.models,
            episodes,
            step=step,
            kl_coefficient=state.controller.coefficient,
            ranks=ranks,
            critic=state.critic,
            measure=measure,
        )
        with measure("update"):
            result = _update(run, batch)
            critic_metrics = _fit_critic(run, batch, ready)
    except (PathError, NotFiniteError) as error:
        raise _dump(run, error) from error
    metrics = compute_step_metrics(recipe, episodes, batch, ready, result, step=step)
    metrics = {"step": step + 1, **metrics, **critic_metrics}
    seconds = time.perf_counter() - start
    completions = _log_completions(run, episodes, batch)
    run.journal.append(run.journal.metrics, metrics)
    state.controller = state.controller.after(metrics["kl"], samples=len(episodes))
    state.step = step + 1
    with measure("publish"):
        publish_weights(run)
    with measure("evaluation"):
        _evaluate(run)
    if _is_checkpoint_step(recipe, state.step):
        with measure("checkpoint"):
            save_run(run, run.journal.checkpoints, keep=recipe.checkpoint.keep)
    tokens = int(batch.mask.sum())
    timing = {"rollout_seconds": sampled - start, "seconds": seconds, "tokens_per_second": tokens / seconds}
    timing = {"step": step + 1, **run.stopwatch.timing(step, **timing)}
    run.journal.append(run.journal.timing, timing)
    run.callbacks.step(metrics, timing)
    run.callbacks.completions(completions)


def _update(run: Run, batch: TrainingBatch) -> UpdateResult:
    """Take the optimizer's steps on a batch, at the learning rate of this step."""
    recipe, state = run.recipe, run.state
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate(recipe, state.step)
    result = update_policy(
        state.policy,
        state.optimizer,
        batch,
        selection=run.selection,
        recipe=recipe,
        coefficient=state.controller.coefficient if recipe.kl is not None and recipe.kl.loss else 0.0,
        order=rng.torch_generator(recipe.seed, "order", state.step),
        ranks=run.ranks,
    )
    if _is_checkpoint_step(recipe, state.step + 1):
        require_finite_logprobs(state.policy, batch, recipe=recipe)
    return result


def _is_checkpoint_step(recipe: Recipe, step: int) -> bool:
    return step % recipe.checkpoint.every == 0 or step == recipe.steps


def _report_failures(run: Run, episodes: list[Episode]) -> None:
    """Report responses without a reward in one line; stop if no response has one."""
    failures = [e.failure for e in episodes if e.failure]
    if failures:
        message = f"step {run.state.step + 1}: {len(failures)} of {len(episodes)} responses have no reward"
        if len(failures) == len(episodes):
            raise SentinelError(f"{message}, first failure: {failures[0]}")
        run.callbacks.message(f"{message} and do not train, first failure: {failures[0]}")


def _log_completions(run: Run, episodes: list[Episode], batch: TrainingBatch) -> list[dict[str, Any]]:
    """Write the responses of a step if they are due, and return the lines to print."""
    settings, step = run.recipe.completions, run.state.step + 1
    if not settings.every or step % settings.every:
        return []
    lines = completion_lines(episodes, batch, parts=getattr(run.selection.environment, "parts", ()), step=step)
    run.journal.append(run.journal.logs["completions"], *lines)
    return lines[:: max(1, len(lines) // max(1, settings.show))][: settings.show]


def _evaluate(run: Run) -> None:
    """Evaluate the policy if it is due, and save a checkpoint after a new best evaluation, except at step 0."""
    settings, state, recipe = run.recipe.evaluation, run.state, run.recipe
    if settings is None or (state.step % settings.every and state.step != recipe.steps):
        return
    sample = partial(run.sampler.sample_evaluation, settings, full_weights(run), state.step)
    metrics = evaluation_metrics(run.ranks.gather(run.prefetcher.call(sample)), settings)
    run.journal.append(run.journal.logs["evaluation"], {"step": state.step, **metrics})
    run.callbacks.evaluation(state.step, metrics)
    if state.best is None or metrics[settings.best] > state.best:
        state.best = metrics[settings.best]
        if state.step:
            save_run(run, run.journal.best, keep=1)


def _fit_critic(run: Run, batch: TrainingBatch, ready: Ready) -> dict[str, float]:
    """Fit the critic, if there is one, and return its metrics."""
    critic = run.state.critic
    if critic is None:
        return {}
    order = rng.torch_generator(run.recipe.seed, "critic", run.state.step)
    try:
        fit = critic.fit(batch.laid, ready, update=run.recipe.update, order=order)
    except CriticStepError as error:
        raise NotFiniteError(str(error), batch, error.rows, 0.0, {"critic": error.state}) from error
    return {"value_loss": fit.loss, "explained_variance": fit.explained_variance}


def _dump(run: Run, error: PathError | NotFiniteError) -> SentinelError:
    """Dump a failed step, and return the error that ends the run.

    Other ranks may not have failed, so no collective is called. With several ranks, the dump has the weights of the
    sampler in this process, which are not sharded. They are those before this step, older ones with
    ``rollout.staleness``, and those of the start with an engine in another program.
    """
    step, rank = run.state.step + 1, "" if run.ranks.is_first else f"-rank-{run.ranks.rank}"
    dump = run.journal.folder / f"stopped-{step:08d}{rank}.pt"
    model = run.models.sampler if run.ranks.size > 1 else run.models.policy
    message = f"step {step} stopped: {error}"
    try:
        dump_failed_step(dump, error, recipe=run.recipe, weights=model.model.state_dict(), step=step)
    except OSError as full:
        return SentinelError(f"{message}; {dump} cannot be written ({full.strerror}), so the step is not dumped")
    weights = " with the sampler's weights" if run.ranks.size > 1 else ""
    return SentinelError(f"{message}; rl-sentinel train {dump} repeats the step{weights}")
