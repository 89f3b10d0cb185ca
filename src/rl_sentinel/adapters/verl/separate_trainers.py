"""Boundaries of verl's trainers on separate GPUs: the advantages in the batch that an update receives."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.advantages import estimators
from rl_sentinel.adapters.verl.numbered_prompts import NumberedPrompts, collect, data_set_tokenizes
from rl_sentinel.adapters.verl.training_run import fakes
from rl_sentinel.adapters.verl.training_run_fakes import Sampled, Silence, bare_trainer, compute_in_process
from rl_sentinel.adapters.verl.training_update import STEP, sampled_prompts, update_boundary, updated_batch
from rl_sentinel.core.boundary import Boundary, Unbound

SEPARATE = "verl.experimental.separation.ray_trainer"
ONE_STEP = "verl.experimental.one_step_off_policy.ray_trainer"

#: Path of a step -> its trainer's class, and how a run reaches it.
STEPS: Mapping[str, tuple[str, str]] = {
    f"{SEPARATE}.SeparateRayPPOTrainer.fit_step": (
        f"{SEPARATE}.SeparateRayPPOTrainer",
        "a trainer of experimental.separation",
    ),
    f"{ONE_STEP}.OneStepOffRayTrainer.fit_step": (
        f"{ONE_STEP}.OneStepOffRayTrainer",
        "experimental.one_step_off_policy.main_ppo",
    ),
}

#: Estimators of the boundaries: one of outcomes, and the one that needs a critic.
NAMES = ("grpo", "gae")


class Asynchronous:
    """A fake rollout manager with asynchronous methods."""

    def __init__(self, workers: Any) -> None:  # noqa: ANN401 - a fake
        """Store the workers, which sample at once."""
        self.workers = workers

    async def generate_sequences(self, batch: Any) -> Any:  # noqa: ANN401 - a DataProto
        """The samples."""
        return self.workers.generate_sequences(batch)

    generate_sequences_async = generate_sequences  # its name until March 2026

    async def clear_kv_cache(self) -> None:
        """Do nothing: there is no cache."""


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of one step of each trainer with each estimator."""
    for path, (owner, reach) in STEPS.items():
        if not target.has(path) or target.fails(path):
            continue
        yield from try_bind(target, path, "advantage", partial(_steps, target, path, owner, reach))


def step_of_trainer(  # noqa: PLR0913 - a run has several parts
    kind: Any,  # noqa: ANN401 - a class of the target
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
    columns: dict[str, Tensor],
    groups: list[str],
    size: int,
    critic: bool,  # noqa: FBT001 - passed by name
) -> dict[str, Tensor]:
    """Run one step; return advantages and returns in the update's batch, in the order of ``groups``."""
    prompts, sampled = sampled_prompts(columns, groups, size)
    config.data.train_batch_size, config.actor_rollout_ref.rollout.n = prompts, size
    trainer = ready_for_a_step(kind, config, sampled, critic=critic)
    rows = NumberedPrompts(prompts, tokenized=data_set_tokenizes())
    batch = collect([rows[number] for number in range(prompts)])
    if inspect.iscoroutinefunction(kind.fit_step):
        trainer.async_rollout_manager = Asynchronous(trainer.actor_rollout_wg)
        asyncio.run(_one_step_off(trainer, batch))
    else:
        trainer.fit_step(batch)
    return updated_batch(trainer)


def ready_for_a_step(
    kind: Any,  # noqa: ANN401 - a class of the target
    config: Any,  # noqa: ANN401 - an OmegaConf configuration
    sampled: Sampled,
    *,
    critic: bool = False,
    steps: int = 1,
) -> Any:  # noqa: ANN401 - an object of the class
    """A trainer that is ready for its first step, with fakes for the objects that its loop creates."""
    trainer = bare_trainer(kind, config, sampled, critic=critic)
    compute_in_process(trainer, trainer.actor_rollout_wg, inspect.getsource(kind._fit_compute_log_prob))  # noqa: SLF001 - as the loop's
    trainer.__dict__ |= {
        **dict.fromkeys(("logger", "progress_bar", "train_dataset"), Silence()),
        **dict.fromkeys(("curr_step_profile", "prev_step_profile"), False),
        **dict.fromkeys(("epoch", "max_steps_duration"), 0),
        "global_steps": 1,
        "total_training_steps": steps,
        "checkpoint_manager": SimpleNamespace(update_weights=no_metrics, sleep_replicas=no_metrics),
        "metrics": {},
        "timing_raw": {},
        "last_val_metrics": {},
        "train_dataloader": SimpleNamespace(sampler=None),
    }
    return trainer


def no_metrics(*_about: object) -> dict[str, float]:
    """Send no weights, and return no metrics."""
    return {}


async def _one_step_off(trainer: Any, batch: dict[str, Any]) -> None:  # noqa: ANN401 - of the target
    """Sample with the weights before the step, because the loop samples one step ahead; then train."""
    future = trainer._async_gen_next_batch(iter([(0, batch)]))  # noqa: SLF001 - as the trainer's loop
    await trainer.fit_step(future, iter(()))


def _steps(target: Target, path: str, owner: str, reach: str) -> Iterator[Boundary]:
    known = estimators(target)
    return (_step(target, path, owner, reach, name) for name in NAMES if name in known)


def _step(target: Target, path: str, owner: str, reach: str, name: str) -> Boundary:
    call: Callable[..., dict[str, Tensor]] = step_of_trainer
    return update_boundary(
        target,
        name,
        path=path,
        owner=owner,
        call=call,
        fixed={**STEP, "actor_rollout_ref.hybrid_engine": False},
        fakes=fakes(target),
        setting=f"step, {name}",
        reach=f"{reach}, algorithm.adv_estimator={name}",
    )
