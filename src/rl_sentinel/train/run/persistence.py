"""Save a run's checkpoints, resume from them, and publish its weights to the sampler."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.lora import merged_weights
from rl_sentinel.train.rollout.prefetch import Weights
from rl_sentinel.train.run.checkpoint import load_newest, save_checkpoint
from rl_sentinel.train.run.distributed import FullWeights
from rl_sentinel.train.run.fingerprint import fingerprint
from rl_sentinel.train.run.run_context import Run
from rl_sentinel.train.run.sharded_state import collect_shards


def resume_run(run: Run) -> None:
    """Restore the newest intact checkpoint, and truncate the logs to it; without a checkpoint, start from step 0.

    Raises:
        SentinelError: if the checkpoint does not fit the recipe, its files and weights, or the metrics.
    """
    run.ranks.barrier()
    journal, say = run.journal, run.callbacks.message
    loaded = load_newest(journal.checkpoints, whole=False)
    for message in loaded.damaged:
        say(message)
    saved = loaded.state
    if saved is None:
        if journal.count_steps():
            say(f"no intact checkpoint in {journal.checkpoints}: repeating all {journal.count_steps()} steps")
        journal.truncate(None)
        publish_weights(run)
        return
    _require_same_start(run, saved)
    for file, digest in saved.get("code", {}).items():
        if run.code.get(file, digest) != digest:
            say(f"{file} has changed since the newest checkpoint: from here on its new code is used")
    run.state.restore(run.recipe, saved)
    journal.truncate(saved["mark"])
    for step, version, weights in saved["ahead"]:
        weights_of_version = full_weights(run) if weights is None else weights
        run.prefetcher.submit(step, weights_of_version, version, until=run.recipe.steps)
    say(f"resuming after step {run.state.step} of {run.recipe.steps}")


def _require_same_start(run: Run, saved: Mapping[str, Any]) -> None:
    """Require that recipe, data, chat template and, if they are read later, the loaded weights have not changed.

    The weights of ``policy.load`` are read later if there is a reference, or if LoRA leaves them frozen.
    """
    at, fix = f"the newest checkpoint in {run.journal.checkpoints}", "or name another folder with out=DIR"
    if saved.get("recipe") != fingerprint(run.recipe):
        raise SentinelError(
            f"{at} is of another recipe than recipe.json beside it, expected the same: name another folder with out=DIR"
        )
    if saved.get("data", "") != _data_digest(run):
        raise SentinelError(f"environment.file has changed since {at}, expected the same rows: restore the file, {fix}")
    if saved.get("template", run.template) != run.template:
        raise SentinelError(
            f"the file of chat.template has changed since {at}, expected the same text: restore the file, {fix}"
        )
    kept = run.recipe.kl is not None or run.recipe.policy.lora is not None
    if kept and saved.get("loaded", run.loaded) != run.loaded:
        raise SentinelError(
            f"policy.load has other weights than at {at}, expected the same, since the reference or LoRA needs them: "
            f"restore them, {fix}"
        )


def save_run(run: Run, folder: Path, *, keep: int) -> None:
    """Save a checkpoint; each of several ranks writes its share of weights and moments, the first rank also the rest.

    With ``checkpoint.background``, copies are written while the next steps are trained; else the ranks wait for them.
    """
    sharded, background = run.ranks.size > 1, run.recipe.checkpoint.background
    state = run.state.for_checkpoint(run.journal.position(), sharded=sharded, copy=background)
    state |= {"ahead": _pending(run), "recipe": fingerprint(run.recipe), "data": _data_digest(run)}
    state |= {"template": run.template, "code": dict(run.code), "loaded": run.loaded}
    shards = collect_shards(run.state.policy.model, run.state.optimizer, copy=background) if sharded else None
    group = run.ranks.saving if background else None
    save = partial(save_checkpoint, step=run.state.step, keep=keep, shards=shards, ranks=run.ranks, group=group)
    run.writer.write(partial(save, folder, state))
    if not background:
        run.ranks.barrier()


def publish_weights(run: Run) -> None:
    """Publish the newest weights to the rollout engine."""
    run.prefetcher.publish(full_weights(run), version=run.state.step, until=run.recipe.steps)


def full_weights(run: Run) -> Mapping[str, Tensor]:
    """The unsharded weights; a copy if sampling runs ahead, since the update changes them in place.

    Without a copy, several ranks gather each tensor when it is read. For a server, LoRA is merged into the weights; the
    sampler in this process gets the low-rank matrices unmerged.
    """
    model, recipe = run.models.policy.model, run.recipe
    merged = recipe.policy.lora is not None and recipe.rollout.engine != "process"
    weights = FullWeights(merged_weights(model) if merged else model.state_dict())
    return {n: w.clone() for n, w in weights.items()} if recipe.rollout.staleness else weights


def _data_digest(run: Run) -> str:
    """The digest of the environment's data; empty if the environment has none."""
    return str(getattr(run.selection.environment, "digest", ""))


def _pending(run: Run) -> list[tuple[int, int, Weights]]:
    """The prefetched steps for a checkpoint, as step, version and weights.

    The weights are None if they are the newest, which the checkpoint already has.
    """
    pending = run.prefetcher.pending()
    return [(step, version, None if version == run.state.step else weights) for step, version, weights in pending]
