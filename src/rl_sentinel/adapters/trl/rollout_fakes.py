"""Fakes for a TRL trainer's rollout: known completions, rewards and log-probs, over ranks."""

import dataclasses
import inspect
import sys
from collections.abc import Sequence
from copy import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.scripted_sampling import vllm_completion
from rl_sentinel.adapters.source_reads import remembered
from rl_sentinel.adapters.trl.log_modes import empty_metrics, logged_elsewhere
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.tiny_trainer import PADDING, Policy, RowRewards

#: Token id of the word "w0"; with ``by_prompt``, the prompt of row n is the word "wn".
FIRST_WORD = 3

#: In place of the number of returned values: the forward pass of this release returns a dict.
BY_NAME = 0


@dataclasses.dataclass
class Rollout:
    """The known values of one rollout.

    Attributes:
        completions: token ids of each completion.
        rewards: the reward of each completion; None if it has none.
        old_logprobs: log-probs ``[B, T]`` under the policy before the update.
        ref_logprobs: log-probs ``[B, T]`` under the reference policy.
        sampler_logprobs: log-probs that the sampling engine returns, per completion.
        env_mask: per completion, 0 at tokens of the environment.
        by_prompt: whether each prompt encodes the index of its row, so that the trainer may reorder rows.
        last_rows: with ``by_prompt``, the row indices of the last forward pass.
    """

    completions: list[list[int]] = dataclasses.field(default_factory=list)
    rewards: list[float | None] = dataclasses.field(default_factory=list)
    old_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    sampler_logprobs: list[list[float]] | None = None
    env_mask: list[list[int]] | None = None
    by_prompt: bool = False
    last_rows: list[int] = dataclasses.field(default_factory=list)

    def rows(self, prompts: Any) -> list[int]:  # noqa: ANN401 - ids, texts or a tensor of ids
        """The row index of each prompt."""
        if not self.by_prompt:
            return list(range(len(prompts)))
        if isinstance(prompts, Tensor):
            return [int(row[0]) - FIRST_WORD for row in prompts]
        return [int(prompt[1:]) if isinstance(prompt, str) else prompt[0] - FIRST_WORD for prompt in prompts]


def forward(rollout: Rollout, outputs: int, reference: Any, model: Any, *args: Any, **_more: object) -> Any:  # noqa: ANN401 - as the method
    """A fake forward pass of policy, reference or old policy; ``outputs`` comes from :func:`forward_pass`."""
    entropies: Tensor | None = None
    if isinstance(model, Policy):
        logprobs: Tensor | None = model.logprobs
        entropies = model.entropies
    else:
        logprobs = rollout.ref_logprobs if model is reference else rollout.old_logprobs
    if rollout.by_prompt:
        rows = rollout.last_rows = rollout.rows(args[0])
        logprobs = None if logprobs is None else logprobs[rows]
        entropies = None if entropies is None else entropies[rows, : args[2]]
    if rollout.by_prompt or not isinstance(model, Policy):
        logprobs = None if logprobs is None else logprobs[:, : args[2]]
    if outputs == BY_NAME:
        return {"logps": logprobs, "entropies": entropies}
    return (logprobs, entropies, None)[:outputs] if outputs > 1 else logprobs


def ready_to_train(
    trainer: Any,  # noqa: ANN401 - a trainer
    micro_batches: int,
    rollout: Rollout | None = None,
    rank: int = 0,
    ranks: int = 1,
) -> Any:  # noqa: ANN401 - a trainer
    """A copy of the trainer at the start of an optimizer step on one rank, with an empty log."""
    ready = copy(trainer)
    ready.args, ready.state = copy(trainer.args), copy(trainer.state)
    ready.model = ready.model_wrapped = copy(trainer.model)
    ready.accelerator = RankAccelerator(trainer.accelerator, rank, ranks)
    ready._metrics = empty_metrics(trainer._metrics)  # noqa: SLF001 - the trainer's log
    ready.current_gradient_accumulation_steps = ready.args.gradient_accumulation_steps = micro_batches
    if hasattr(ready.args, "steps_per_generation"):
        ready.args.steps_per_generation = micro_batches
    name, outputs = forward_pass(trainer.__class__)
    setattr(ready, name, partial(forward, rollout or Rollout(), outputs, ready.ref_model))
    return ready


@remembered
def forward_pass(trainer: type) -> tuple[str, int]:
    """The name of the method that computes log-probs, and how many values it returns (:data:`BY_NAME`: a dict)."""
    name = "_get_per_token_logps_and_entropies"
    if not hasattr(trainer, name):
        return "_get_per_token_logps", 1
    if '{"logps": ' in inspect.getsource(inspect.unwrap(getattr(trainer, name))):
        return name, BY_NAME
    return name, 3 if "compute_aux_loss" in inspect.signature(getattr(trainer, name)).parameters else 2


@remembered
def returned_names(method: Any) -> tuple[str, ...]:  # noqa: ANN401 - a function
    """The names in a method's last return statement."""
    source = inspect.getsource(inspect.unwrap(method))
    return tuple(name.strip() for name in source.rpartition("return ")[2].split(","))


def ready_to_score(
    trainer: Any,  # noqa: ANN401 - a trainer
    generations: int,
    micro_batches: int = 1,
    rank: int = 0,
    ranks: int = 1,
    **values: Any,  # noqa: ANN401 - of a rollout
) -> Any:  # noqa: ANN401 - a trainer
    """A copy of the trainer before a rollout; ``values`` are fields of :class:`Rollout`."""
    rollout = Rollout(**values)
    ready = ready_to_train(trainer, micro_batches, rollout, rank, ranks)
    ready.rollout = rollout
    ready.num_generations = ready.args.num_generations = generations
    rewards = getattr(trainer, "reward_funcs", ())  # absent if the trainer has a teacher
    ready.reward_funcs = [RowRewards(one.__name__, one.weight, rollout.rewards) for one in rewards]
    if hasattr(ready, "_generate_single_turn"):
        order = returned_names(type(trainer)._generate_single_turn)  # noqa: SLF001
        ready._generate_single_turn = partial(generate_turn, rollout, order)  # noqa: SLF001
    else:
        ready.model.generate = partial(generate, rollout)
        if getattr(ready, "use_vllm", False):
            give_engine(ready, rollout)
    if hasattr(ready, "rollout_func"):
        ready.rollout_func = None if rollout.env_mask is None else partial(generate_in_environment, rollout)
    return ready


def give_engine(ready: Any, rollout: Rollout) -> None:  # noqa: ANN401 - a trainer
    """Give the known rollout, as a fake engine, to a trainer that calls vLLM directly."""
    vars(sys.modules[type(ready).__module__]).setdefault("SamplingParams", SimpleNamespace)
    ready._last_loaded_step = ready.state.global_step  # noqa: SLF001 - so that it sends no weights
    ready.vllm_mode, ready.vllm_tensor_parallel_size, ready.guided_decoding_regex = "colocate", 1, None
    ready.llm = SimpleNamespace(generate=partial(engine_outputs, rollout))


def engine_outputs(rollout: Rollout, prompts: Sequence[Any], **_options: object) -> list[Any]:
    """A fake ``generate`` of vLLM: it returns one known completion per prompt, with log-probs."""
    found = []
    for row in rollout.rows(prompts):
        ids = rollout.completions[row]
        logprobs = rollout.sampler_logprobs[row] if rollout.sampler_logprobs else [0.0] * len(ids)
        found.append(SimpleNamespace(outputs=[vllm_completion(ids, logprobs)]))
    return found


def select(values: Sequence[Any] | None, rows: list[int]) -> list[Any] | None:
    """The values at these rows, or None if ``values`` is None."""
    return None if values is None else [values[row] for row in rows]


def prompt_ids(rollout: Rollout, rows: list[int]) -> list[list[int]]:
    """Token ids of prompts with one token each."""
    return [[FIRST_WORD + (row if rollout.by_prompt else 1)] for row in rows]


def generate_turn(
    rollout: Rollout, order: tuple[str, ...], prompts: Sequence[Any], *_arguments: object, **_more: object
) -> Any:  # noqa: ANN401 - as the method
    """A fake ``_generate_single_turn``: it returns the known rollout, in the order of values in this release."""
    rows = rollout.rows(prompts)
    values: dict[str, Any] = {
        "prompt_ids": prompt_ids(rollout, rows),
        "completion_ids": select(rollout.completions, rows),
        "logprobs": select(rollout.sampler_logprobs, rows),
        "forward_kwargs": {},
        "extra_fields": {},
    }
    returned = tuple(values[name] for name in order)
    return returned if len(returned) > 1 else returned[0]


def generate(rollout: Rollout, input_ids: Tensor, **_options: object) -> Tensor:
    """A fake ``generate`` of the model: it returns each prompt with its known completion."""
    return generated_rows(input_ids, [rollout.completions[row] for row in rollout.rows(input_ids)])


def generated_rows(input_ids: Tensor, completions: list[list[int]]) -> Tensor:
    """Prompts and right-padded completions, in the format of transformers' ``generate``."""
    width = max(map(len, completions))
    rows = torch.tensor([row + [PADDING] * (width - len(row)) for row in completions])
    return torch.cat([input_ids, rows], 1)


def generate_in_environment(rollout: Rollout, prompts: Sequence[Any], *_trainer: object) -> dict[str, Any]:
    """A fake rollout function; its ``env_mask`` is 0 at tokens of the environment."""
    rows = rollout.rows(prompts)
    ids = {"prompt_ids": prompt_ids(rollout, rows), "completion_ids": select(rollout.completions, rows)}
    return {**ids, "logprobs": select(rollout.sampler_logprobs, rows), "env_mask": select(rollout.env_mask, rows)}


def score_ranks(method: str, trainers: list[Any], inputs: list[list[dict[str, str]]]) -> Any:  # noqa: ANN401 - a trainer
    """Let each rank sample and score its rows, and return the trainer of rank 0."""
    run_on_ranks(len(trainers), lambda rank: getattr(trainers[rank], method)(inputs[rank]))
    return trainers[0]


def evaluate_rollout(trainers: list[Any], inputs: list[list[dict[str, str]]]) -> Any:  # noqa: ANN401 - a trainer
    """Let each rank evaluate its rows without computing a loss, and return the trainer of rank 0.

    Its attribute ``received`` is the mean of all rewards.
    """
    for ready in trainers:
        ready.model.training = False
        ready.num_generations_eval = ready.num_generations
        ready.compute_loss = partial(no_loss, ready)
    run_on_ranks(len(trainers), lambda rank: trainers[rank].prediction_step(trainers[rank].model, inputs[rank], True))  # noqa: FBT003 - as evaluation_loop
    rewards = [torch.tensor(ready.rollout.rewards) for ready in trainers]
    trainers[0].received = torch.cat(rewards).mean()
    return trainers[0]


def rollout_modes(method: str, trainers: list[Any], inputs: list[list[dict[str, str]]]) -> Any:  # noqa: ANN401 - a trainer
    """Run an evaluation and a training rollout, and return the trainer of the only rank.

    Its attribute ``received`` is the mean of the rewards. Its attribute ``elsewhere`` is the number of metrics logged
    under the wrong mode.
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
    """A loss of 0, which is ignored."""
    return torch.zeros(())
