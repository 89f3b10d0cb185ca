"""Fakes of torch's collectives for AReaL's ranks, some of which hold copies of the same rows."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

from rl_sentinel.adapters.areal.rank_engines import DATA, collectives
from rl_sentinel.adapters.kit.rank_threads import rank_number, run_on_ranks

#: The number of each rank.
NUMBERS = (1.0, 5.0, 2.0, 8.0)


def reduced(copies: int, op: Any, group: object) -> list[float]:
    """What each rank has after its number was reduced."""
    found: list[float] = [0.0] * len(NUMBERS)
    all_reduce = collectives(copies)["all_reduce"]

    def work(rank: int) -> None:
        tensor = torch.tensor(NUMBERS[rank])
        all_reduce(tensor, op=op, group=group)
        found[rank] = float(tensor)

    run_on_ranks(len(NUMBERS), work)
    return found


@pytest.mark.parametrize(
    ("op", "whole", "first", "second"),
    [
        (dist.ReduceOp.SUM, 16.0, 3.0, 13.0),
        (dist.ReduceOp.AVG, 4.0, 1.5, 6.5),
        (dist.ReduceOp.MAX, 8.0, 2.0, 8.0),
        (dist.ReduceOp.MIN, 1.0, 1.0, 5.0),
    ],
)
def test_a_number_is_reduced_over_all_ranks_or_over_one_copy_of_each(
    op: Any, whole: float, first: float, second: float
) -> None:
    """Ranks 0 and 2, and 1 and 3, are a data-parallel group, if two neighbours have the same rows."""
    assert reduced(2, op, None) == [whole] * 4
    assert reduced(2, op, DATA) == [first, second, first, second]
    assert reduced(1, op, DATA) == [whole] * 4


def test_objects_are_gathered_in_the_order_of_the_ranks() -> None:
    found: dict[int, list[Any]] = {}
    gather = collectives(2)["all_gather_object"]

    def work(rank: int) -> None:
        whole: list[Any] = [None] * 4
        data: list[Any] = [None] * 2
        gather(whole, {"rank": rank})
        gather(data, rank, group=DATA)
        found[rank] = [whole, data]

    run_on_ranks(4, work)
    assert all(whole == [{"rank": n} for n in range(4)] for whole, _ in found.values())
    assert [found[rank][1] for rank in range(4)] == [[0, 2], [1, 3], [0, 2], [1, 3]]


def test_sizes_and_ranks_of_groups() -> None:
    found: list[tuple[int, ...]] = []
    of = collectives(2)

    def work(_rank: int) -> None:
        sizes = of["get_world_size"](), of["get_world_size"](DATA), of["get_rank"](), of["get_rank"](DATA)
        found.append((rank_number(), *sizes))

    run_on_ranks(4, work)
    assert sorted(found) == [(0, 4, 2, 0, 0), (1, 4, 2, 1, 0), (2, 4, 2, 2, 1), (3, 4, 2, 3, 1)]
