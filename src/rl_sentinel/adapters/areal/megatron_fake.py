"""A fake of AReaL's Megatron engine: one process, one pipeline stage, and fixed model outputs."""

import logging
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.fakes import ENTROPY, LABELS, LOGPROBS, VALUES, read_outputs
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.process_group import one_process_group, parallel_state_of_one_process

#: Sizes of parallel groups, each of which is 1.
_SIZES = ("pipeline_parallel_size", "context_parallel_size", "tensor_parallel_size")

#: Features of the engine that are not in use.
_DISABLED = (
    *("is_vision_model", "enable_tree_training", "enable_fp8", "use_padded_seq", "use_model_packed_seq"),
    "is_offload",
)


def megatron_engine(owner: Any, config: Any) -> Any:  # noqa: ANN401 - AReaL's engine class, its configuration, an engine
    """An engine of one process with a fake model, schedule and optimizer.

    ``losses`` records the loss of each micro-batch, divided by their number as Megatron divides it (schedules.py,
    forward_step: a loss function that returns two values).
    """
    losses: list[Tensor] = []
    fakes = {
        "mpu": SimpleNamespace(**parallel_state_of_one_process()),
        "get_forward_backward_func": lambda: partial(_schedule, losses),
        "packed_context_parallel_forward": forward,
        "gather_logprobs_entropy": read_outputs,
    }

    def train_batch(engine: object, *args: object, **options: object) -> Any:  # noqa: ANN401 - as the method
        with replaced_globals(owner.train_batch.__globals__, **fakes):
            return owner.train_batch(engine, *args, **options)

    def do_nothing(*_args: object, **_options: object) -> dict[str, float]:
        return {}

    attributes: dict[str, Any] = {
        "config": config,
        "mcore_config": getattr(config, "megatron", None),
        "model": [SimpleNamespace()],
        "parallel_strategy": SimpleNamespace(**dict.fromkeys(_SIZES, 1)),
        "optimizer": SimpleNamespace(get_loss_scale=lambda: torch.tensor(1.0)),
        "data_parallel_group": one_process_group(),
        "device": torch.device("cpu"),
        "dtype": torch.float32,
        "logger": logging.getLogger("areal"),
        "get_version": lambda _engine: 0,
        "train_batch": train_batch,
        "losses": losses,
        "_awex_adapter": None,  # the adapter of weights that share a device with the sampler
        **dict.fromkeys(_DISABLED, False),
        **dict.fromkeys(("train", "_ensure_ready", "optimizer_zero_grad", "optimizer_step"), do_nothing),
    }
    return object.__new__(type("MegatronEngineFake", (owner,), attributes))


def _schedule(
    losses: list[Tensor],
    forward_step_func: Callable[..., Any],
    data_iterator: object,
    model: object,
    num_microbatches: int,
    **_more: object,
) -> None:
    """Run the micro-batches forward and backward, and append their losses."""
    for _ in range(num_microbatches):
        output, compute_loss = forward_step_func(data_iterator, model)
        loss = compute_loss(output)[0] / num_microbatches
        torch.autograd.backward([loss])
        losses.append(loss.detach())


def forward(_model: object, inputs: dict[str, Tensor], *_more: object, **_options: object) -> Tensor:
    """The model's output at each position: the value, ``[N, 1]``, or the input of :func:`read_outputs`, ``[N, 3]``."""
    names = (VALUES,) if VALUES in inputs else (LOGPROBS, ENTROPY, LABELS)
    return torch.stack([inputs[name].reshape(-1).float() for name in names], -1)
