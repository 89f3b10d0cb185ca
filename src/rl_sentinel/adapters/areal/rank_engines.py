"""Run AReaL's FSDP engine on simulated data-parallel ranks; tensor-parallel copies of a rank have the same rows."""

import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rl_sentinel.adapters.areal.fakes import (
    CLIPS,
    PLACES,
    READERS,
    PlacedModel,
    as_passed,
    recording_engine,
)
from rl_sentinel.adapters.areal.tracked_metrics import logging_only
from rl_sentinel.adapters.kit.rank_threads import gather_from_ranks, rank_count, rank_number, run_on_ranks
from rl_sentinel.adapters.kit.replacement import replaced_globals

#: The group of the ranks that train on different rows; every other group is the whole world.
DATA = object()


#: Operation of ``torch.distributed`` -> the function that reduces the stacked values of the ranks.
REDUCTIONS: Mapping[Any, Callable[[Tensor, int], Tensor]] = {
    dist.ReduceOp.SUM: torch.sum,
    dist.ReduceOp.AVG: torch.mean,
    dist.ReduceOp.MAX: torch.amax,
    dist.ReduceOp.MIN: torch.amin,
}


class WholeModel(PlacedModel):
    """A fake model of which each rank sees whole sequences."""

    def __call__(self, **inputs: Tensor) -> Any:  # noqa: ANN401 - what a model returns
        """The outputs at each position, ``[1, N, 3]``."""
        places = inputs[PLACES].reshape(1, -1)
        return SimpleNamespace(logits=torch.stack([column.reshape(-1)[places] for column in self.columns], -1))


def collectives(copies: int) -> Mapping[str, Callable[..., Any]]:
    """Fakes of ``torch.distributed`` by name, for a world in which ``copies`` neighboring ranks have the same rows."""

    def members(values: list[Any], group: object) -> list[Any]:
        return values[rank_number() % copies :: copies] if group is DATA else values

    def all_reduce(tensor: Tensor, op: Any = dist.ReduceOp.SUM, group: object = None) -> None:  # noqa: ANN401 - torch's
        values = torch.stack(members(gather_from_ranks(tensor.detach().clone()), group))
        tensor.copy_(REDUCTIONS[op](values, 0))

    def all_gather_object(gathered: list[Any], item: object, group: object = None) -> None:
        gathered[:] = members(gather_from_ranks(item), group)

    return {
        "all_reduce": all_reduce,
        "all_gather_object": all_gather_object,
        "get_world_size": lambda group=None: rank_count() // (copies if group is DATA else 1),
        "get_rank": lambda group=None: rank_number() // (copies if group is DATA else 1),
    }


def run_engines(  # noqa: PLR0913 - functions and classes of the target, and their arguments
    method: Callable[..., Any],
    trainer: Callable[..., Any],
    owner: Any,  # noqa: ANN401 - AReaL's engine class
    config: Any,  # noqa: ANN401 - AReaL's class
    data: dict[str, Tensor],
    ranks: int,
    copies: int,
) -> list[Tensor]:
    """The losses behind the gradient of an update, one per rank and micro-batch; or the one that an evaluation returns.

    Each rank has an equal share of the rows. Gradients are averaged over the ranks, as FSDP does. The copies of a rank
    have parts of its model, so that their gradients are not added to it. An evaluation that returns different numbers
    on the ranks counts as infinite.
    """
    size = len(data["input_ids"]) // ranks
    engines = [_engine(owner, config, ranks, copies) for _ in range(ranks * copies)]
    module = vars(inspect.getmodule(owner))

    def work(rank: int) -> None:
        own = {name: column[rank // copies * size :][:size] for name, column in data.items()}
        longest = int(own["attention_mask"].sum(1).max())  # the data loader of each rank pads its own rows
        part = {name: _part(column[:, :longest], ranks) for name, column in own.items()}
        if rank % copies:
            part = {name: column.detach().requires_grad_(column.requires_grad) for name, column in part.items()}
        method(trainer(engines[rank]), as_passed(method, engines[rank].model.take_columns(part)))

    with (
        replaced_globals(vars(dist), **collectives(copies)),
        replaced_globals(inspect.unwrap(method).__globals__, **READERS),
        replaced_globals(module, **CLIPS),
        logging_only(()),
    ):
        run_on_ranks(ranks * copies, work)
    if engines[0].evaluated is not None:
        results = torch.stack([engine.evaluated for engine in engines])
        return [results[0] if torch.allclose(results, results[0], equal_nan=True) else results.new_tensor(torch.inf)]
    return [loss / ranks for engine in engines[::copies] for loss in engine.losses]


def _engine(owner: Any, config: Any, ranks: int, copies: int) -> Any:  # noqa: ANN401 - AReaL's classes, an engine
    """An engine of one rank, with parallel sizes by the names that releases read.

    ``evaluated`` is the loss that its last evaluation returned, or None.
    """
    engine = recording_engine(owner, config)
    kind: Any = type(engine)
    kind.model, kind.evaluated = WholeModel(), None
    sizes = {"dp": ranks, "sp": 1, "tp": copies}
    kind.parallel_helper = SimpleNamespace(**{f"{name}_size": size for name, size in sizes.items()}, tp_group=None)
    for name, size in sizes.items():
        setattr(kind, f"{name}_world_size", size)
    kind.world_size = ranks * copies
    kind.dp_group, kind.world_mesh = DATA, SimpleNamespace()

    def eval_batch(self: Any, *inputs: Any, **options: Any) -> Any:  # noqa: ANN401 - as the method
        kind.evaluated = owner.eval_batch(self, *inputs, **options).reshape(())
        return self.evaluated

    kind.eval_batch = eval_batch
    return engine


def _part(column: Tensor, ranks: int) -> Tensor:
    """A rank's part of a column; its gradient is divided by the number of ranks."""
    part = column.clone()
    if part.requires_grad:
        part.register_hook(lambda gradient: gradient / ranks)  # type: ignore[no-untyped-call]  # torch's
    return part
