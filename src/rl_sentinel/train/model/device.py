"""Devices: the model is on the recipe's device; the batch and its signal are on the CPU."""

import os

import torch
from torch import Tensor

from rl_sentinel.core.errors import SentinelError

#: Where the batch is and the signal is computed: a few numbers per token, beside a model that reads each token.
CPU = torch.device("cpu")


def resolve_device(name: str) -> torch.device:
    """The device of a recipe's ``policy.device``: ``auto`` is CUDA if it is available, else the CPU.

    Processes that torchrun starts on one machine take its GPUs in turn.

    Args:
        name: ``auto``, ``cpu`` or ``cuda``.

    Raises:
        SentinelError: for ``cuda`` where torch finds no device.

    Example:
        >>> from rl_sentinel.train.model.device import resolve_device
        >>> resolve_device("cpu")
        device(type='cpu')
    """
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise SentinelError(
            "policy.device is 'cuda', but torch finds no CUDA device: set policy.device=cpu, or install "
            "a CUDA build of torch where a GPU is visible"
        )
    if name == "cpu" or not has_cuda:
        return CPU
    local_rank = os.environ.get("LOCAL_RANK", "0")
    device = torch.device("cuda", (int(local_rank) if local_rank.isdecimal() else 0) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    # cuDNN's attention plans anew for each shape, and the shapes of responses differ from step to step.
    torch.backends.cuda.enable_cudnn_sdp(False)  # noqa: FBT003 - torch's own
    return device


def send(values: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to a device; from the CPU to CUDA through pinned memory, without blocking.

    Example:
        >>> import torch
        >>> from rl_sentinel.train.model.device import CPU, send
        >>> send(torch.tensor([1, 2]), CPU)
        tensor([1, 2])
    """
    to_cuda = device.type == "cuda" and values.device.type == "cpu"
    return values.pin_memory().to(device, non_blocking=True) if to_cuda else values.to(device)
