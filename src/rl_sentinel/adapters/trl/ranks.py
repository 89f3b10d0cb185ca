"""Doubles for TRL's data-parallel processes: threads that meet in the collectives of accelerate."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.target import Target

#: Seconds after which a rank that waits for the others gives up.
LONGEST_WAIT = 30.0


class World:
    """What the ranks share: a place for the value of each, and the barrier at which they meet."""

    def __init__(self, size: int) -> None:
        """Take the number of ranks."""
        self.size = size
        self.values: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)

    def exchange(self, rank: int, value: Any) -> list[Any]:  # noqa: ANN401 - what a collective carries
        """The values of all ranks, in their order."""
        self.values[rank] = value
        self.barrier.wait(LONGEST_WAIT)
        values = list(self.values)
        self.barrier.wait(LONGEST_WAIT)
        return values


class Rank(threading.Thread):
    """A data-parallel process: it runs ``work`` with its number, and keeps the answer or the error."""

    def __init__(self, world: World, number: int, work: Callable[[int], Any]) -> None:
        """Take the world, the place in it, and the work."""
        super().__init__(daemon=True)
        self.world, self.number, self.work = world, number, work
        self.differentiates = torch.is_grad_enabled()
        self.answer: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do the work; an error releases the ranks that wait."""
        try:
            with torch.set_grad_enabled(self.differentiates):
                self.answer = self.work(self.number)
        except BaseException as error:  # noqa: BLE001 - raised again where the ranks are joined
            self.error = error
            self.world.barrier.abort()


def in_ranks(size: int, work: Callable[[int], Any]) -> list[Any]:
    """What ``work(rank)`` answers on each of several ranks; one rank runs in this thread.

    Raises:
        BaseException: the first error of a rank that is not about the others.
        RuntimeError: if a rank waits for one that has gone on without it.
    """
    if size == 1:
        return [work(0)]
    world = World(size)
    # After a fork, the first parallel operation replaces the thread pool of torch; threads would race there.
    torch.set_num_threads(torch.get_num_threads())
    ranks = [Rank(world, number, work) for number in range(size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    errors = [rank.error for rank in ranks if rank.error is not None]
    own = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
    if own:
        raise own[0]
    if errors:
        message = f"{size} ranks do not meet in the same collectives: one of them waits for a rank that has gone on"
        raise RuntimeError(message) from errors[0]
    return [rank.answer for rank in ranks]


def everywhere(value: Any) -> list[Any]:  # noqa: ANN401 - what a collective carries
    """The value of each rank, or of this process alone where it is the only one."""
    here = threading.current_thread()
    return here.world.exchange(here.number, value) if isinstance(here, Rank) else [value]


def gather(tensor: Any) -> Any:  # noqa: ANN401 - a tensor, or a container of them
    """The tensors of all ranks, one after the other; a number becomes a row, and no gradient passes."""
    tensors = everywhere(tensor)
    if len(tensors) == 1:
        return tensor
    if isinstance(tensor, dict):
        return {key: torch.cat([as_rows(one[key]) for one in tensors]) for key in tensor}
    return torch.cat([as_rows(one) for one in tensors])


def as_rows(tensor: Tensor) -> Tensor:
    """A tensor with at least one axis, without its gradient."""
    return tensor.detach().reshape(1) if tensor.dim() == 0 else tensor.detach()


def gather_object(objects: list[Any]) -> list[Any]:
    """The items of all ranks' lists."""
    return [item for one in everywhere(objects) for item in one]


def broadcast_object_list(objects: list[Any], from_process: int = 0) -> list[Any]:
    """The list of one rank, put into that of each."""
    objects[:] = everywhere(objects)[from_process]
    return objects


class RankAccelerator:
    """The accelerator of a rank: its own, with the collectives of this world and a backward that keeps the loss."""

    def __init__(self, own: Any, number: int, size: int) -> None:  # noqa: ANN401 - accelerate's
        """Take the accelerator of a single process, and the place of this one."""
        self.own = own
        self.process_index = self.local_process_index = number
        self.num_processes = size
        self.is_main_process = self.is_local_main_process = number == 0
        self.losses: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the accelerator has
        """What no rank changes."""
        return getattr(self.__dict__["own"], name)

    def backward(self, loss: Tensor, **_options: object) -> None:
        """Keep a loss whose gradient is asked for later; its slices add up, as gradients do."""
        self.losses.append(loss)

    def gather(self, tensor: Any) -> Any:  # noqa: ANN401 - a tensor, or a container of them
        """The tensors of all ranks."""
        return gather(tensor)

    def gather_for_metrics(self, data: Any, **_options: object) -> Any:  # noqa: ANN401 - tensors or objects
        """The tensors, or the items, of all ranks."""
        return gather_object(data) if isinstance(data, list) else gather(data)

    def reduce(self, tensor: Tensor, reduction: str = "mean", scale: float = 1.0) -> Tensor:
        """The sum or the mean over the ranks; one process gives back what it got."""
        tensors = everywhere(tensor.detach())
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
        """The tensor with as many items along an axis as that of any rank."""
        most = max(everywhere(tensor.shape[dim]))
        shape = list(tensor.shape)
        shape[dim] = most - tensor.shape[dim]
        padding = tensor.new_full(shape, pad_index)
        return torch.cat([padding, tensor] if pad_first else [tensor, padding], dim)

    def wait_for_everyone(self) -> None:
        """Meet the other ranks."""
        everywhere(None)


def collectives(target: Target, kind: str) -> Mapping[str, Callable[..., Any]]:
    """Doubles for the collectives that the module of a trainer imports by name."""
    module = f"trl.trainer.{kind}_trainer"
    doubles = {"gather": gather, "gather_object": gather_object, "broadcast_object_list": broadcast_object_list}
    return {f"{module}.{name}": double for name, double in doubles.items() if hasattr(target.module(module), name)}
