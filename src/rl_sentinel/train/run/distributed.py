"""Training with several processes: divide episodes and rows over ranks, and combine their results."""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor, distributed, nn

from rl_sentinel.core.errors import SentinelError

#: glibc's ``M_MMAP_THRESHOLD``, the size from which an allocation has a separate mapping; and its value here, in bytes.
_MMAP_THRESHOLD, _RETURNED_FROM = -3, 2**20

#: How to start processes that find each other.
_START = "start them with torchrun, or unset WORLD_SIZE and RANK for a single process"


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among all ranks; a single process is rank 0 of 1, without communication.

    Example:
        >>> import torch
        >>> from rl_sentinel.train.run.distributed import Ranks
        >>> ranks = Ranks(rank=0, size=1)
        >>> ranks.gather([1, 2]), ranks.own_parts(torch.tensor([1, 0]), size=1, lengths=torch.tensor([3, 3]))
        ([1, 2], [tensor([1]), tensor([0])])
    """

    rank: int
    size: int
    #: The process group of the thread that samples, whose collectives must not mix with those of the main thread.
    sampling: Any = field(default=None, compare=False, repr=False)
    #: The process group of the thread that writes checkpoints.
    saving: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def join(cls) -> Self:
        """Join the processes that torchrun started, or run alone.

        Raises:
            SentinelError: if ``WORLD_SIZE`` is not a number of processes, or several processes cannot connect.
        """
        world = os.environ.get("WORLD_SIZE", "1")
        if not world.isdecimal() or int(world) < 1:
            raise SentinelError(f"WORLD_SIZE is {world!r}, expected the number of processes: {_START}")
        if int(world) == 1 or "RANK" not in os.environ:
            return cls(0, 1)
        try:
            if not distributed.is_initialized():
                distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
            sampling, saving = distributed.new_group(backend="gloo"), distributed.new_group(backend="gloo")
            _return_freed_memory()
        except (ValueError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise SentinelError(
                f"WORLD_SIZE is {world}, but the processes cannot connect ({reason}): {_START}"
            ) from error
        return cls(distributed.get_rank(), distributed.get_world_size(), sampling, saving)

    def close(self) -> None:
        """Leave the process group."""
        if self.size > 1 and distributed.is_initialized():
            distributed.destroy_process_group()

    def end_process(self) -> None:
        """End this process with status 0 if it is one of several; call it last, after ``close``.

        DTensor's caches hold the process group, and with it gloo's threads, until the interpreter ends. A thread that
        then requests the interpreter's lock aborts the process, though all its work is done (described in PyTorch's
        pull request 179291).
        """
        if self.size > 1:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    @property
    def is_first(self) -> bool:
        """Whether this process is rank 0, which writes the logs and the output."""
        return self.rank == 0

    def barrier(self, group: Any = None) -> None:  # noqa: ANN401 - a process group of torch
        """Wait for all ranks; ``group`` is the calling thread's process group, by default the main thread's."""
        if self.size > 1:
            with peer_failure_in_one_line():
                distributed.barrier(group=group)

    def own_slice(self, whole: Sequence[Any]) -> list[Any]:
        """This rank's slice of a sequence; joined in rank order, the slices of all ranks give the sequence."""
        bounds = [len(whole) * n // self.size for n in range(self.size + 1)]
        return list(whole[bounds[self.rank] : bounds[self.rank + 1]])

    def gather(self, items: Sequence[Any]) -> list[Any]:
        """The concatenated sequences of all ranks, in order."""
        if self.size == 1:
            return list(items)
        parts: list[Any] = [None] * self.size
        with peer_failure_in_one_line():
            distributed.all_gather_object(parts, list(items))
        return [x for part in parts for x in part]

    def all_reduce(self, values: Tensor) -> Tensor:
        """The sum over ranks of tensors of one shape."""
        if self.size > 1:
            values = values.clone()
            with peer_failure_in_one_line():
                distributed.all_reduce(values)
        return values

    def own_parts(self, rows: Tensor, *, size: int, lengths: Tensor, budget: int | None = None) -> list[Tensor]:
        """This rank's rows in parts; all ranks have equally many parts, some of which may be empty.

        All ranks must run a sharded model equally often, since each run gathers its weights.

        Args:
            rows: the rows of all ranks.
            size: the most rows of a part.
            lengths: the number of tokens of each row, by the index of the row.
            budget: the most tokens of a part with its padding, unless it is a single row; None for no limit.
        """
        rows_of_rank, longest = rows[self.rank :: self.size], lengths[rows].tolist()
        turns = [max(longest[n : n + self.size]) for n in range(0, len(longest), self.size)]
        bounds, start, width = [0], 0, 0
        for turn, length in enumerate(turns):  # every rank has at most one row per turn
            width = max(width, length)
            if turn - start == size or (budget is not None and turn > start and (turn - start + 1) * width > budget):
                bounds.append(turn)
                start, width = turn, length
        bounds += [len(turns)] if turns else []
        return [rows_of_rank[first:last] for first, last in pairwise(bounds)]

    def shard_model(self, model: nn.Module, layers: Sequence[nn.Module]) -> nn.Module:
        """Shard a model over all ranks with FSDP2; unchanged on a single rank."""
        if self.size > 1:
            from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - slow, and rarely needed
            from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - as above; older releases of torch lack it

            mesh = init_device_mesh(next(model.parameters()).device.type, (self.size,))
            for layer in layers:
                fully_shard(layer, mesh=mesh)
            # A forward pass without a gradient would otherwise leave the root module unsharded.
            fully_shard(model, mesh=mesh, reshard_after_forward=True)
        return model


def _return_freed_memory() -> None:
    """Give memory of freed tensors back to the system at once.

    FSDP gathers and frees the weights layer by layer. glibc keeps freed blocks below a size that it raises by itself
    up to 32 MiB, so a process would hold as much memory as several whole models.
    """
    with suppress(OSError, AttributeError):  # other C libraries have no such setting
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _RETURNED_FROM)


class FullWeights(Mapping[str, Tensor]):
    """Sharded weights as full tensors: each one is gathered when it is read, so that no rank holds all of them.

    All ranks must read the same tensors in the same order, while the weights do not change.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        """Store the state dict of a model, sharded or not."""
        self._weights = weights

    def __getitem__(self, name: str) -> Tensor:
        """Gather one tensor."""
        weight = self._weights[name]
        gather: Callable[[], Tensor] | None = getattr(weight, "full_tensor", None)
        if gather is None:
            return weight
        with peer_failure_in_one_line():
            return gather()

    def __iter__(self) -> Iterator[str]:
        """The names of the tensors."""
        return iter(self._weights)

    def __len__(self) -> int:
        """The number of tensors."""
        return len(self._weights)


@contextmanager
def peer_failure_in_one_line() -> Iterator[None]:
    """Report a collective operation that failed because another rank failed.

    Raises:
        SentinelError: if the collective raises.
    """
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0][:120]
        raise SentinelError(
            f"an exchange with the other processes failed ({reason}): see their messages for the cause"
        ) from error


#: A single process.
ALONE = Ranks(0, 1)
