"""Replacements for parts of a TRL trainer: an engine, rewards and forward passes with the values of a case."""

import dataclasses
import inspect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.rank_threads import in_ranks
from rl_sentinel.adapters.trl.log_modes import logged_elsewhere
from rl_sentinel.adapters.trl.ranks import RankAccelerator
from rl_sentinel.adapters.trl.tiny_trainer import PADDING, Policy, RowRewards

#: Id of the word "w0"; the prompt of row n is the word "wn" where rows are told apart.
FIRST_WORD = 3

#: The number of answers of a forward pass whose release returns a dict.
BY_NAME = 0


@dataclasses.dataclass
class Rollout:
    """What the engine, the reward function and forward passes answer for one rollout.

    With ``by_prompt`` the rows that an answer is for are those that the prompts name, in whatever order they come.
    """

    completions: list[list[int]] = dataclasses.field(default_factory=list)
    rewards: list[float | None] = dataclasses.field(default_factory=list)
    old_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    sampler_logprobs: list[list[float]] | None = None
    env_mask: list[list[int]] | None = None
    by_prompt: bool = False
    asked: list[int] = dataclasses.field(default_factory=list)

    def rows(self, prompts: Any) -> list[int]:  # noqa: ANN401 - ids, texts or a tensor of ids
        """The rows of prompts."""
        if not self.by_prompt:
            return list(range(len(prompts)))
        if isinstance(prompts, Tensor):
            return [int(row[0]) - FIRST_WORD for row in prompts]
        return [int(one[1:]) if isinstance(one, str) else one[0] - FIRST_WORD for one in prompts]


def forward(rollout: Rollout, answers: int, reference: Any, model: Any, *args: Any, **_more: object) -> Any:  # noqa: ANN401 - as the method
    """A forward pass of the policy, the reference or the old policy, with as many answers as the release has."""
    entropies: Tensor | None = None
    if isinstance(model, Policy):
        logprobs: Tensor | None = model.logprobs
        entropies = model.entropies
    else:
        logprobs = rollout.ref_logprobs if model is reference else rollout.old_logprobs
    if rollout.by_prompt:
        rows = rollout.asked = rollout.rows(args[0])
        logprobs = None if logprobs is None else logprobs[rows]
        entropies = None if entropies is None else entropies[rows, : args[2]]
    if rollout.by_prompt or not isinstance(model, Policy):
        logprobs = None if logprobs is None else logprobs[:, : args[2]]
    if answers == BY_NAME:
        return {"logps": logprobs, "entropies": entropies}
    return (logprobs, entropies, None)[:answers] if answers > 1 else logprobs


def ready_to_train(
    trainer: Any,  # noqa: ANN401 - a trainer
    micro_batches: int,
    rollout: Rollout | None = None,
    rank: int = 0,
    ranks: int = 1,
) -> Any:  # noqa: ANN401 - a trainer
    """The trainer before the first micro-batch of an optimizer step: nothing is logged, accumulation is known."""
    ready = copy(trainer)
    ready.args, ready.state = copy(trainer.args), copy(trainer.state)
    ready.model = ready.model_wrapped = copy(trainer.model)
    ready.accelerator = RankAccelerator(trainer.accelerator, rank, ranks)
    ready._metrics = (  # noqa: SLF001 - where the trainer logs
        {mode: defaultdict(list) for mode in ("train", "eval")} if "train" in trainer._metrics else defaultdict(list)  # noqa: SLF001
    )
    ready.current_gradient_accumulation_steps = ready.args.gradient_accumulation_steps = micro_batches
    if hasattr(ready.args, "steps_per_generation"):
        ready.args.steps_per_generation = micro_batches
    name, answers = forward_pass(trainer.__class__)
    setattr(ready, name, partial(forward, rollout or Rollout(), answers, ready.ref_model))
    return ready


@cache
def forward_pass(trainer: type) -> tuple[str, int]:
    """The name of a trainer's method that computes log-probs, and how many values it returns."""
    name = "_get_per_token_logps_and_entropies"
    if not hasattr(trainer, name):
        return "_get_per_token_logps", 1
    if '{"logps": ' in inspect.getsource(inspect.unwrap(getattr(trainer, name))):
        return name, BY_NAME
    return name, 3 if "compute_aux_loss" in inspect.signature(getattr(trainer, name)).parameters else 2


@cache
def returned_names(method: Any) -> tuple[str, ...]:  # noqa: ANN401 - a function
    """The names that a method returns at its end."""
    source = inspect.getsource(inspect.unwrap(method))
    return tuple(name.strip() for name in source.rpartition("return ")[2].split(","))


@cache
def takes_whole_rollout(trainer: type) -> bool:
    """Whether a step is passed the prompts of the whole rollout, rather than those of its micro-batch."""
    return "split_tensor_dict" in inspect.getsource(inspect.unwrap(trainer._prepare_inputs))  # type: ignore[attr-defined]  # noqa: SLF001


def ready_to_score(
    trainer: Any,  # noqa: ANN401 - a trainer
    generations: int,
    micro_batches: int = 1,
    rank: int = 0,
    ranks: int = 1,
    **answers: Any,  # noqa: ANN401 - of a rollout
) -> Any:  # noqa: ANN401 - a trainer
    """The trainer before a rollout whose tokens, rewards and log-probs are known; nothing is logged yet."""
    rollout = Rollout(**answers)
    ready = ready_to_train(trainer, micro_batches, rollout, rank, ranks)
    ready.rollout = rollout
    ready.num_generations = ready.args.num_generations = generations
    (reward,) = trainer.reward_funcs
    ready.reward_funcs = [RowRewards(reward.__name__, reward.weight, rollout.rewards)]
    if hasattr(ready, "_generate_single_turn"):
        order = returned_names(type(trainer)._generate_single_turn)  # noqa: SLF001
        ready._generate_single_turn = partial(generate_turn, rollout, order)  # noqa: SLF001
    else:
        ready.model.generate = partial(generate, rollout)
    if hasattr(ready, "rollout_func"):
        ready.rollout_func = None if rollout.env_mask is None else partial(generate_in_environment, rollout)
    return ready


def taken(values: Sequence[Any] | None, rows: list[int]) -> list[Any] | None:
    """The values of these rows."""
    return None if values is None else [values[row] for row in rows]


def prompt_ids(rollout: Rollout, rows: list[int]) -> list[list[int]]:
    """One token for each prompt."""
    return [[FIRST_WORD + (row if rollout.by_prompt else 1)] for row in rows]


def generate_turn(
    rollout: Rollout, order: tuple[str, ...], prompts: Sequence[Any], *_arguments: object, **_more: object
) -> Any:  # noqa: ANN401 - as the method
    """The known tokens, in the order of what the release returns."""
    rows = rollout.rows(prompts)
    answers: dict[str, Any] = {
        "prompt_ids": prompt_ids(rollout, rows),
        "completion_ids": taken(rollout.completions, rows),
        "logprobs": taken(rollout.sampler_logprobs, rows),
        "forward_kwargs": {},
        "extra_fields": {},
    }
    returned = tuple(answers[name] for name in order)
    return returned if len(returned) > 1 else returned[0]


def generate(rollout: Rollout, input_ids: Tensor, **_options: object) -> Tensor:
    """Prompts and their known completions."""
    return generated_rows(input_ids, [rollout.completions[row] for row in rollout.rows(input_ids)])


def generated_rows(input_ids: Tensor, completions: list[list[int]]) -> Tensor:
    """Prompts and completions, padded at the right as ``generate`` of transformers pads them."""
    width = max(map(len, completions))
    rows = torch.tensor([row + [PADDING] * (width - len(row)) for row in completions])
    return torch.cat([input_ids, rows], 1)


def generate_in_environment(rollout: Rollout, prompts: Sequence[Any], *_trainer: object) -> dict[str, Any]:
    """What a rollout function returns, with 0 at tokens that an environment wrote."""
    rows = rollout.rows(prompts)
    ids = {"prompt_ids": prompt_ids(rollout, rows), "completion_ids": taken(rollout.completions, rows)}
    return {**ids, "logprobs": taken(rollout.sampler_logprobs, rows), "env_mask": taken(rollout.env_mask, rows)}


def ready_to_update(  # noqa: PLR0913 - the trainer, its place among the ranks, and what the policy answers
    trainer: Any,  # noqa: ANN401 - a trainer
    micro_batches: int,
    rank: int,
    ranks: int,
    logprobs: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    **answers: Any,  # noqa: ANN401 - of a rollout
) -> Any:  # noqa: ANN401 - a trainer
    """The trainer of a rank before the first step on a rollout, whose advantages are then those of the case."""
    rows = len(answers["completions"])
    whole = takes_whole_rollout(trainer.__class__)
    generations = ranks * (rows if whole else rows // micro_batches)
    ready = ready_to_score(trainer, generations, micro_batches, rank, ranks, by_prompt=True, **answers)
    ready.policy, ready.advantages, ready.takes_whole_rollout = Policy(logprobs, entropies), advantages, whole
    if hasattr(type(trainer), "get_off_policy_mask"):
        ready.kept = torch.zeros(rows)
        ready.get_off_policy_mask = partial(off_policy_mask, ready, type(trainer).get_off_policy_mask)
    ready._step = 0  # noqa: SLF001 - where the trainer counts
    per_step = isinstance(trainer._buffered_inputs, list)  # noqa: SLF001 - where it keeps a rollout
    ready._buffered_inputs = [None] * micro_batches if per_step else None  # noqa: SLF001
    ready._generate_and_score_completions = partial(with_advantages, ready, ready._generate_and_score_completions)  # noqa: SLF001
    return ready


def with_advantages(trainer: Any, score: Any, inputs: Sequence[dict[str, str]]) -> dict[str, Any]:  # noqa: ANN401
    """A scored rollout with the advantages of the case."""
    rows = trainer.rollout.rows([one["prompt"] for one in inputs])
    return {**score(inputs), "advantages": trainer.advantages[rows]}


def off_policy_mask(trainer: Any, decide: Any, **arguments: Tensor) -> Tensor:  # noqa: ANN401 - a trainer, its method
    """The decisions of the trainer, which are kept by row of the rollout."""
    kept: Tensor = decide(**arguments)
    trainer.kept[trainer.rollout.asked] = kept.reshape(-1).float()
    return kept


def optimizer_step(trainers: list[Any]) -> dict[str, Any]:
    """The last optimizer step that data-parallel ranks take on a rollout: the mean of their losses, and the first one.

    Each micro-batch goes through ``training_step``; what its ``backward`` is called with is the loss.
    """
    losses = in_ranks(len(trainers), lambda rank: train_on_rollout(trainers[rank]))
    return {"loss": torch.stack(losses).mean(), "trainer": trainers[0]}


def train_on_rollout(trainer: Any) -> Tensor:  # noqa: ANN401 - a trainer
    """The sum of the losses of the second iteration over a rollout; the first one is past."""
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
    """The same random numbers each time; ``torch.manual_seed`` would write the stack for each."""
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(0)
    try:
        yield
    finally:
        generator.set_state(before)


def scored_rollout(method: str, trainers: list[Any], inputs: list[list[dict[str, str]]]) -> Any:  # noqa: ANN401 - a trainer
    """The trainer of the first rank, after each rank has sampled and scored its rows."""
    in_ranks(len(trainers), lambda rank: getattr(trainers[rank], method)(inputs[rank]))
    return trainers[0]


def evaluated_rollout(trainers: list[Any], inputs: list[list[dict[str, str]]]) -> Any:  # noqa: ANN401 - a trainer
    """The trainer of the first rank, after each rank has evaluated its rows; its loss is not looked at.

    ``received`` is the mean of the rewards that its functions gave.
    """
    for ready in trainers:
        ready.model.training = False
        ready.num_generations_eval = ready.num_generations
        ready.compute_loss = partial(no_loss, ready)
    in_ranks(len(trainers), lambda rank: trainers[rank].prediction_step(trainers[rank].model, inputs[rank], True))  # noqa: FBT003 - as evaluation_loop
    rewards = [torch.tensor(ready.rollout.rewards) for ready in trainers]
    trainers[0].received = torch.cat(rewards).mean()
    return trainers[0]


def rollout_modes(method: str, trainers: list[Any], inputs: list[list[dict[str, str]]]) -> Any:  # noqa: ANN401 - a trainer
    """The trainer of the only rank, with the number of names that evaluation and training log as the other's.

    ``received`` is the mean of the rewards that its functions gave, ``elsewhere`` the number of names.
    """
    (ready,) = trainers
    ready.num_generations_eval = ready.num_generations
    ready.compute_loss = partial(no_loss, ready)
    ready.elsewhere = logged_elsewhere(
        ready,
        lambda: ready.prediction_step(ready.model, inputs[0], True),  # noqa: FBT003 - as evaluation_loop
        lambda: getattr(ready, method)(inputs[0]),
    )
    ready.received = torch.tensor(ready.rollout.rewards).mean()
    return ready


def no_loss(_trainer: Any, *_arguments: object, **_more: object) -> Tensor:  # noqa: ANN401 - a trainer
    """A loss that is not looked at."""
    return torch.zeros(())
