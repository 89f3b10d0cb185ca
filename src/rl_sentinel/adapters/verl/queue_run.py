"""Boundary of the training loop of verl's v1 trainer: its prompts and weight versions, also after a restart."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.replacement import bare_instance, nothing
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.numbered_prompts import NumberedPrompts, collect
from rl_sentinel.adapters.verl.queue_fakes import QueuedBatch, takes_ages
from rl_sentinel.adapters.verl.queue_trainer import BASE, MODULE, TRAINER
from rl_sentinel.adapters.verl.training_run import run_boundary, sampled
from rl_sentinel.adapters.verl.training_run_fakes import (
    Logger,
    Silence,
    SkipManager,
    Timer,
    Workers,
    in_process_loader,
    no_bar,
)
from rl_sentinel.core.boundary import Boundary, Unbound

PATH = f"{BASE}.fit"

#: Methods of a step that neither draw prompts nor send weights.
_PASSES = ("_balance_batch", "_compute_old_log_prob", "_compute_advantage")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loop of the synchronous trainer, which is the default."""
    if all(target.has(path) for path in (PATH, TRAINER, f"{BASE}._init_dataloader")) and not target.fails(TRAINER):
        yield from try_bind(target, PATH, "batch", lambda: [_loop(target)])


class Agents:
    """A fake manager of agent loops that samples each prompt at once."""

    def __init__(self, workers: Workers) -> None:
        """Store the workers, which record the prompts."""
        self.workers = workers

    def generate_sequences(self, batch: Any) -> None:  # noqa: ANN401 - a TensorDict
        """Record the prompts."""
        self.workers.draw([int(messages[0]["content"]) for messages in batch["raw_prompt"]])


class Samples(Silence):
    """A fake transfer queue and replay buffer that returns one row per batch."""

    def sample(self, **_about: object) -> Any:  # noqa: ANN401 - a batch and its metrics, or a batch
        """A batch and the metrics of its age."""
        return QueuedBatch(["row"], tags=[{}]), {}


class SamplesWithoutAge(Samples):
    """:class:`Samples` for trainers of earlier releases, which expect a batch without the metrics of its age."""

    def sample(self, **about: object) -> QueuedBatch:
        """A batch."""
        return super().sample(**about)[0]  # type: ignore[no-any-return] # of the pair


def make_trainer(kind: Any, config: Any, prompts: int, folder: Path) -> Any:  # noqa: ANN401 - a class of the target
    """A trainer after ``init``, with fakes for the workers, the data set and the methods of a step."""
    config.trainer.default_local_dir = str(folder)
    config.data.train_files = config.data.val_files = str(prompts)
    workers = Workers(None, sampled)
    samples, ages = Agents(workers), takes_ages(kind)
    trainer = bare_instance(
        kind,
        config=config,
        **dict.fromkeys(("use_critic", "use_reference_policy", "use_teacher_policy"), False),
        **dict.fromkeys(("processor", "_restored_tq_prompt_count"), 0),
        **dict.fromkeys(("actor_rollout_wg", "checkpoint_manager"), workers),
        **dict.fromkeys(("checkpoint_callback", "replay_buffer"), Samples() if ages else SamplesWithoutAge()),
        **dict.fromkeys(_PASSES, _unchanged),
        async_rollout_manager=samples,
        tokenizer=None,
        trainer_mode="sync",
        parameter_sync_step=1,
        local_trigger_step=0,
        reward_loop_manager=SimpleNamespace(reward_loop_worker_handles=[]),
        _update_actor=partial(_updated, workers),
        **dict.fromkeys(("_compute_metrics", "_init_dump_executor", "_shutdown_dump_executor"), nothing),
        _dump_executor=SimpleNamespace(_shutdown=True),
    )
    trainer._init_dataloader()  # noqa: SLF001 - as the trainer's init
    if hasattr(kind, "on_init_end"):
        fit = partial(trainer.fit, samples)
        trainer._load_checkpoint()  # noqa: SLF001 - as above
        trainer.on_init_end()
        trainer.fit = fit
    return trainer


def _unchanged(batch: QueuedBatch, **_about: object) -> QueuedBatch:
    return batch


def _updated(workers: Workers, batch: QueuedBatch, **_about: object) -> QueuedBatch:
    """Count one update of the actor."""
    workers.updates.append(batch)
    return batch


def data_set(files: Any, data: Any, *_about: object, **_more: object) -> NumberedPrompts:  # noqa: ANN401 - of the configuration
    """A data set of numbered prompts; the file name is the number of prompts."""
    del data
    return NumberedPrompts(int(files), tokenized=False)


def _fakes(target: Target) -> dict[str, Callable[..., Any]]:
    replaced: dict[str, Any] = {
        "StatefulDataLoader": in_process_loader,
        "create_rl_dataset": data_set,
        "collate_fn": collect,
        "Tracking": Logger,
        **dict.fromkeys(("ValidationGenerationsLogger", "DapoFilteredRewardTableLogger", "tqdm"), no_bar),
        "SkipManager": SkipManager,
        "tq": Samples(),
        "KVBatchMeta": QueuedBatch,
    }
    found = {f"{MODULE}.{name}": fake for name, fake in replaced.items() if target.has(f"{MODULE}.{name}")}
    timer = "verl.utils.profiler.performance.Timer"
    return {**found, **({timer: Timer} if target.has(timer) else {})}


def _loop(target: Target) -> Boundary:
    reach = "trainer.use_v1=True (the default), a run that is restarted from a checkpoint"
    return run_boundary(target, PATH, TRAINER, make_trainer, _fakes(target), publishes=True, reach=reach)
