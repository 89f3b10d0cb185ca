"""Fakes for a TRL trainer's optimizer steps on a rollout of known completions, over ranks."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.source_reads import remembered
from rl_sentinel.adapters.trl.rollout_fakes import ready_to_score
from rl_sentinel.adapters.trl.tiny_trainer import Policy


@remembered
def takes_whole_rollout(trainer: type) -> bool:
    """Whether a step gets the prompts of the whole rollout, not only the prompts of its micro-batch."""
    return "split_tensor_dict" in inspect.getsource(inspect.unwrap(trainer._prepare_inputs))  # type: ignore[attr-defined]  # noqa: SLF001


def ready_to_update(  # noqa: PLR0913 - the trainer, its rank, and the values of policy and rollout
    trainer: Any,  # noqa: ANN401 - a trainer
    micro_batches: int,
    rank: int,
    ranks: int,
    logprobs: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    **values: Any,  # noqa: ANN401 - of a rollout
) -> Any:  # noqa: ANN401 - a trainer
    """Copy the trainer for one rank, before the first step on a rollout with the advantages of the batch."""
    rows = len(values["completions"])
    whole = takes_whole_rollout(trainer.__class__)
    generations = ranks * (rows if whole else rows // micro_batches)
    ready = ready_to_score(trainer, generations, micro_batches, rank, ranks, by_prompt=True, **values)
    ready.policy, ready.advantages, ready.takes_whole_rollout = Policy(logprobs, entropies), advantages, whole
    if hasattr(type(trainer), "get_off_policy_mask"):
        ready.kept = torch.zeros(rows)
        ready.get_off_policy_mask = partial(off_policy_mask, ready, type(trainer).get_off_policy_mask)
    ready._step = 0  # noqa: SLF001 - the trainer's counter
    per_step = isinstance(trainer._buffered_inputs, list)  # noqa: SLF001 - the trainer's buffer of a rollout
    ready._buffered_inputs = [None] * micro_batches if per_step else None  # noqa: SLF001
    ready._generate_and_score_completions = partial(with_advantages, ready, ready._generate_and_score_completions)  # noqa: SLF001
    return ready


def with_advantages(trainer: Any, score: Any, inputs: Sequence[dict[str, str]]) -> dict[str, Any]:  # noqa: ANN401
    """Score a rollout, and replace its advantages with those of the batch."""
    rows = trainer.rollout.rows([row["prompt"] for row in inputs])
    return {**score(inputs), "advantages": trainer.advantages[rows]}


def off_policy_mask(trainer: Any, decide: Any, **arguments: Tensor) -> Tensor:  # noqa: ANN401 - a trainer, its method
    """The trainer's off-policy mask, which is also recorded for each row of the rollout."""
    mask: Tensor = decide(**arguments)
    trainer.kept[trainer.rollout.last_rows] = mask.reshape(-1).float()
    return mask


def optimizer_step(trainers: list[Any]) -> dict[str, Any]:
    """Train data-parallel ranks on a rollout.

    Returns the mean of their losses in the last optimizer step, and the trainer of rank 0. Each micro-batch is trained
    by ``training_step``; its loss is the argument of ``backward``.
    """
    losses = run_on_ranks(len(trainers), lambda rank: train_on_rollout(trainers[rank]))
    return {"loss": torch.stack(losses).mean(), "trainer": trainers[0]}


def train_on_rollout(trainer: Any) -> Tensor:  # noqa: ANN401 - a trainer
    """Fill the buffer, run the second iteration over the rollout, and return the sum of its losses."""
    prompts = [{"prompt": f"w{row}"} for row in range(len(trainer.rollout.completions))]
    parts = trainer.args.gradient_accumulation_steps
    size = len(prompts) // parts
    batches = [prompts if trainer.takes_whole_rollout else prompts[n * size : (n + 1) * size] for n in range(parts)]
    with fixed_shuffle():
        for batch in batches[: 1 if trainer.takes_whole_rollout else parts]:
            trainer._prepare_inputs(batch)  # noqa: SLF001 - as the first iteration does
        trainer._step, trainer.state.global_step = parts, 1  # noqa: SLF001 - after the first iteration
        trainer._metrics["train"].clear()  # noqa: SLF001 - as ``log`` does after each step
        for batch in batches:
            trainer.training_step(trainer.policy, batch, None)
    return torch.stack(trainer.accelerator.losses).sum()


@contextmanager
def fixed_shuffle() -> Iterator[None]:
    """Seed the random numbers; ``torch.manual_seed`` would also record a stack trace each time, which is slow."""
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(0)
    try:
        yield
    finally:
        generator.set_state(before)
