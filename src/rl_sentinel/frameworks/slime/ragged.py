"""slime's layout: one tensor per sample, response-aligned, and a namespace of arguments."""

from argparse import Namespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.frameworks.layout import put_ragged, take_ragged

PPO = "slime.utils.ppo_utils"
LOSS = "slime.backends.megatron_utils.loss"


def parts(batch: Batch, column: str) -> list[Tensor]:
    """A column of the batch, one tensor per sample."""
    return put_ragged(getattr(batch, column), batch.length)


def masks(batch: Batch) -> list[Tensor]:
    """Loss masks as slime keeps them, one per sample."""
    return [m.to(torch.int32) for m in parts(batch, "mask")]


def lengths(batch: Batch) -> dict[str, list[int]]:
    """Lengths with the prompt, and without it."""
    total = (batch.prompt_length + batch.length).tolist()
    return {"total_lengths": total, "response_lengths": batch.length.tolist()}


def rollout_data(batch: Batch, rewards: list[float]) -> dict[str, Any]:
    """The batch as the trainer holds it after the forward passes."""
    return {
        "log_probs": parts(batch, "old_logprob"),
        "ref_log_probs": parts(batch, "ref_logprob"),
        "rollout_log_probs": parts(batch, "rollout_logprob"),
        "values": parts(batch, "value"),
        "rewards": rewards,
        "loss_masks": masks(batch),
        **lengths(batch),
    }


def arguments(settings: Settings, **fixed: object) -> Namespace:
    """Arguments of slime: only those that are set here; any other raises its name."""
    return Namespace(**{**fixed, **settings})


def back(samples: list[Tensor], batch: Batch) -> Tensor:
    """``[B, T]`` from one tensor per sample."""
    return take_ragged(samples, batch.width)


def split_back(column: Tensor, batch: Batch) -> Tensor:
    """``[B, T]`` from the tensors of all samples put end to end."""
    ends = batch.length.cumsum(0).tolist()
    return back([column[end - n : end] for end, n in zip(ends, batch.length.tolist(), strict=True)], batch)
