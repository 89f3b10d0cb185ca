"""Fake collectives of accelerate for TRL's data-parallel ranks, which run as threads."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.rank_threads import gather_from_ranks, rank_number
from rl_sentinel.adapters.target import Target


def gather(tensor: Any) -> Any:  # noqa: ANN401 - a tensor, or a container of them
    """The tensors of all ranks, concatenated and detached; a scalar counts as one row. One rank gets its own back."""
    tensors = gather_from_ranks(tensor)
    if len(tensors) == 1:
        return tensor
    if isinstance(tensor, dict):
        return {key: torch.cat([as_rows(part[key]) for part in tensors]) for key in tensor}
    return torch.cat([as_rows(part) for part in tensors])


def as_rows(tensor: Tensor) -> Tensor:
    """The detached tensor, with one axis if it is a scalar."""
    return tensor.detach().reshape(1) if tensor.dim() == 0 else tensor.detach()


def gather_object(objects: list[Any]) -> list[Any]:
    """The items of the lists of all ranks."""
    return [item for part in gather_from_ranks(objects) for item in part]


def broadcast_object_list(objects: list[Any], from_process: int = 0) -> list[Any]:
    """Replace the contents of each rank's list with the contents of the list of rank ``from_process``."""
    objects[:] = gather_from_ranks(objects)[from_process]
    return objects


def all_gather_object(found: list[Any], own: Any, group: object = None) -> None:  # noqa: ANN401 - as torch's
    """Write the objects of the ranks in ``group`` (a ``range``) into ``found``; without a group, of all ranks."""
    every = gather_from_ranks(own)
    found[:] = [every[rank] for rank in group] if isinstance(group, range) else every


def rank_in_group(group: object = None) -> int:
    """The index of this rank in the group."""
    return rank_number() - (group.start if isinstance(group, range) else 0)


class RankAccelerator:
    """The accelerator of a rank. Its collectives exchange data between threads, and ``backward`` records the loss."""

    def __init__(self, own: Any, number: int, size: int) -> None:  # noqa: ANN401 - accelerate's
        """Wrap the accelerator of a single process; ``number`` is the rank, ``size`` the number of ranks."""
        self.own = own
        self.process_index = self.local_process_index = number
        self.num_processes = size
        self.is_main_process = self.is_local_main_process = number == 0
        self.losses: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the accelerator has
        """Any other attribute of the wrapped accelerator."""
        return getattr(self.__dict__["own"], name)

    def backward(self, loss: Tensor, **_options: object) -> None:
        """Record the loss. The audit differentiates the sum of the recorded losses, since gradients are summed."""
        self.losses.append(loss)

    def gather(self, tensor: Any) -> Any:  # noqa: ANN401 - a tensor, or a container of them
        """The tensors of all ranks, concatenated."""
        return gather(tensor)

    def gather_for_metrics(self, data: Any, **_options: object) -> Any:  # noqa: ANN401 - tensors or objects
        """The tensors or lists of all ranks, concatenated."""
        return gather_object(data) if isinstance(data, list) else gather(data)

    def reduce(self, tensor: Tensor, reduction: str = "mean", scale: float = 1.0) -> Tensor:
        """The sum or the mean over the ranks, times ``scale``; the tensor itself if there is one rank."""
        tensors = gather_from_ranks(tensor.detach())
        if len(tensors) == 1:
            return tensor
        total = torch.stack(tensors).sum(0) * scale
        return total / len(tensors) if reduction == "mean" else total

    def pad_across_processes(
        self,
        tensor: Tensor,
        dim: int = 0,
        pad_index: float = 0,
        pad_first: bool = False,  # noqa: FBT001, FBT002 - as accelerate's
    ) -> Tensor:
        """The tensor, padded along an axis to the longest tensor of all ranks."""
        most = max(gather_from_ranks(tensor.shape[dim]))
        shape = list(tensor.shape)
        shape[dim] = most - tensor.shape[dim]
        padding = tensor.new_full(shape, pad_index)
        return torch.cat([padding, tensor] if pad_first else [tensor, padding], dim)

    def wait_for_everyone(self) -> None:
        """Wait for the other ranks."""
        gather_from_ranks(None)


def collectives(target: Target, kind: str) -> Mapping[str, Callable[..., Any]]:
    """Fakes for the collectives that the trainer's module imports by name."""
    module = f"trl.trainer.{kind}_trainer"
    fakes = {"gather": gather, "gather_object": gather_object, "broadcast_object_list": broadcast_object_list}
    return {f"{module}.{name}": fake for name, fake in fakes.items() if hasattr(target.module(module), name)}
