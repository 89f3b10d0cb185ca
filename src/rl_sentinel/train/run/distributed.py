"""Processes that train one model: who samples what, who learns from which rows, and what they tell each other."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor, distributed, nn

from rl_sentinel.core.errors import SentinelError

#: What is left to do where processes do not meet.
_WAY = "start them by torchrun, or unset WORLD_SIZE and RANK for one alone"


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among all; one process is one rank, and asks nobody.

    Example:
        >>> import torch
        >>> from rl_sentinel.train.run.distributed import Ranks
        >>> ranks = Ranks(rank=0, size=1)
        >>> ranks.gathered([1, 2]), ranks.mine(torch.tensor([5, 6]), size=1)
        ([1, 2], [tensor([5]), tensor([6])])
    """

    rank: int
    size: int

    @classmethod
    def joined(cls) -> Self:
        """The processes that torchrun started, or this one alone.

        Raises:
            SentinelError: if the environment says that there are several, and not how they find each other.
        """
        told = os.environ.get("WORLD_SIZE", "1")
        if not told.isdecimal() or int(told) < 1:
            raise SentinelError(f"WORLD_SIZE is {told!r}, expected the number of processes: {_WAY}")
        if int(told) == 1 or "RANK" not in os.environ:
            return cls(0, 1)
        try:
            if not distributed.is_initialized():
                distributed.init_process_group("gloo")
        except (ValueError, RuntimeError) as error:
            words = str(error).partition("\n")[0]
            raise SentinelError(f"WORLD_SIZE is {told}, and the processes do not meet ({words}): {_WAY}") from error
        return cls(distributed.get_rank(), distributed.get_world_size())

    def close(self) -> None:
        """End what joined them."""
        if self.size > 1 and distributed.is_initialized():
            distributed.destroy_process_group()

    @property
    def first(self) -> bool:
        """Whether this one writes and tells."""
        return self.rank == 0

    def wait(self) -> None:
        """Until all are here."""
        if self.size > 1:
            with _together():
                distributed.barrier()

    def share(self, whole: Sequence[Any]) -> list[Any]:
        """This rank's run of a sequence; together they are all of it, in the order of ranks."""
        bounds = [len(whole) * n // self.size for n in range(self.size + 1)]
        return list(whole[bounds[self.rank] : bounds[self.rank + 1]])

    def gathered(self, own: Sequence[Any]) -> list[Any]:
        """What all ranks have, in the order of ranks."""
        if self.size == 1:
            return list(own)
        found: list[Any] = [None] * self.size
        with _together():
            distributed.all_gather_object(found, list(own))
        return [x for part in found for x in part]

    def added(self, values: Tensor) -> Tensor:
        """The sum over ranks, of tensors of one shape."""
        if self.size > 1:
            values = values.clone()
            with _together():
                distributed.all_reduce(values)
        return values

    def mine(self, rows: Tensor, *, size: int) -> list[Tensor]:
        """This rank's rows, ``size`` at a time: as many parts on each rank, some of them empty.

        Every rank must go through a sharded model equally often, since all of them gather its weights.
        """
        own = rows[self.rank :: self.size]
        most = -(-len(rows[:: self.size]) // size)
        return [own[n * size : (n + 1) * size] for n in range(most)]

    def sharded(self, model: nn.Module, layers: Sequence[nn.Module]) -> nn.Module:
        """The model with its weights spread over all ranks; as it is where there is one."""
        if self.size > 1:
            from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - slow, and rarely needed
            from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - as above; older releases of torch lack it

            mesh = init_device_mesh("cpu", (self.size,))
            for layer in layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh, reshard_after_forward=True)  # else a pass without a gradient leaves it whole
        return model

    def whole(self, model: nn.Module) -> dict[str, Any]:
        """All weights of a model, on each rank; all must ask."""
        if self.size == 1:
            return model.state_dict()
        from torch.distributed.checkpoint import state_dict as gathering  # noqa: PLC0415 - slow, and rarely needed

        return gathering.get_model_state_dict(model, options=gathering.StateDictOptions(full_state_dict=True))


@contextmanager
def _together() -> Iterator[None]:
    """Where another process has ended, say so in one line: its own words are another's."""
    try:
        yield
    except RuntimeError as error:
        words = str(error).partition("\n")[0][:120]
        raise SentinelError(f"another process has ended ({words}), expected all: its own words say why") from error


#: One process.
ALONE = Ranks(0, 1)
