"""Boundary of verl's one-step-off trainer: the weights that sample a batch while the trainer takes a step."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_outputs import row_fields, row_outputs
from rl_sentinel.adapters.kit.value_codecs import Constant, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.adapters.verl.numbered_prompts import NumberedPrompts, collect, data_set_tokenizes
from rl_sentinel.adapters.verl.separate_trainers import ONE_STEP, STEPS, Asynchronous, no_metrics, ready_for_a_step
from rl_sentinel.adapters.verl.training_run import fakes, sampled
from rl_sentinel.adapters.verl.training_update import STEP
from rl_sentinel.core.boundary import Boundary, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

PATH = f"{ONE_STEP}.OneStepOffRayTrainer.fit_step"

_DOCS = (
    "docs/advance/one_step_off.md: the parameters are synchronized between two generations, so that each batch is "
    "sampled with the weights of one step before"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of one step, during which the next batch is sampled."""
    if target.has(PATH) and not target.fails(PATH):
        yield from try_bind(target, PATH, "batch", lambda: [_boundary(target)])


class Rollout(Asynchronous):
    """A fake rollout manager: it samples the first batch at once, and the next batch until the step has ended."""

    def __init__(self, workers: Any) -> None:  # noqa: ANN401 - a fake
        """Start without a batch."""
        super().__init__(workers)
        self.ended, self.sent = asyncio.Event(), 0
        self.late, self.during = 0, 0

    def send(self, *about: object, **more: object) -> dict[str, float]:
        """Send the newest weights to the engine."""
        self.sent += 1
        metrics: dict[str, float] = self.workers.update_weights(*about, **more)
        return metrics

    async def generate_sequences(self, batch: Any) -> Any:  # noqa: ANN401 - a DataProto
        """The samples. For the second batch, count missed updates, and updates that arrive during sampling."""
        first = not self.workers.drawn
        answer = self.workers.generate_sequences(batch)
        if not first:
            self.late, before = self.workers.behind[-1], self.sent
            await self.ended.wait()
            self.during = self.sent - before
        return answer

    generate_sequences_async = generate_sequences  # its name until March 2026


def sampled_meanwhile(kind: Any, config: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: ANN401 - of the target
    """Sample responses during a step; return their log-probs, and the weight version of each token.

    Versions are lower if the weights miss an update when sampling starts. The last version is higher if the weights
    change before sampling ends.
    """
    late, during = asyncio.run(_step_and_next_batch(kind, config))
    versions = [[version - late for version in row["versions"]] for row in rows]
    changed = [[*row[:-1], row[-1] + during] for row in versions]
    return {
        "logprobs": [torch.tensor(row["logprobs"]) for row in rows],
        "versions": [torch.tensor(row) for row in changed],
    }


async def _step_and_next_batch(kind: Any, config: Any) -> tuple[int, int]:  # noqa: ANN401 - as above
    """Train one step while the next batch is sampled.

    Returns the number of updates that the sampling weights missed, and the number of updates during sampling.
    """
    config.data.train_batch_size, config.actor_rollout_ref.rollout.n = 1, 2
    trainer = ready_for_a_step(kind, config, sampled, steps=2)
    rollout = Rollout(trainer.actor_rollout_wg)
    trainer.async_rollout_manager = rollout
    trainer.checkpoint_manager = SimpleNamespace(update_weights=rollout.send, sleep_replicas=no_metrics)
    data = NumberedPrompts(2, tokenized=data_set_tokenizes())
    batches = iter([(0, collect([data[number]])) for number in range(2)])
    first = trainer._async_gen_next_batch(batches)  # noqa: SLF001 - as the trainer's loop
    following = await trainer.fit_step(first, batches)
    rollout.ended.set()
    await following
    return rollout.late, rollout.during


def _boundary(target: Target) -> Boundary:
    row = row_fields("logprobs", "versions")
    owner, reach = STEPS[PATH]
    fixed = {**STEP, "actor_rollout_ref.hybrid_engine": False, "algorithm.adv_estimator": "grpo"}
    return one_call(
        path=PATH,
        stage="batch",
        call=sampled_meanwhile,
        name="sampled",
        arguments={
            "kind": Constant(Function(owner)),
            "config": default_config(target, "", constants(**fixed), resolved=True),
            "rows": EachRow(Table(row)),
        },
        fakes=fakes(target),
        produced_by={"rows": "one_step_off_policy/ray_trainer.py, fit_step: the batch of the next step"},
        outputs=row_outputs(Use("sampled"), "rollout_logprob", "version"),
        settings={"the next batch": {}},
        claims=claims(_DOCS, conserves=True),
        reach=reach,
        requires=(no_empty_response,),
    )
