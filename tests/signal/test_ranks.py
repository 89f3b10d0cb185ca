"""Losses and aggregations are exact however a mini-batch is cut: into micro-batches, and over real processes."""

import random
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from draws import Draw, cases
from formula_pairs import MODES
from loss_formulas import LOSSES as POLICY_LOSSES
from loss_formulas import fitting, loss_of
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from rl_sentinel.signal import kl, minibatches, penalty, reduce, value
from rl_sentinel.signal.correction.trust import rejected_fraction

#: Loss -> of a draw, the log-probs (or values) that a gradient is taken to, and the aggregation.
LOSSES: dict[str, Callable[[Draw, Tensor, reduce.Aggregation], Tensor]] = {
    name: partial(loss_of, name) for name in POLICY_LOSSES
}
LOSSES |= {
    "aggregate": lambda x, leaf, by: reduce.aggregate(
        leaf * reduce.selected(x.advantage, mask=x.mask), mask=x.mask, aggregation=by
    ),
    "as_loss": lambda x, leaf, by: penalty.as_loss(
        kl.k3(leaf, x.ref, mask=x.mask), mask=x.mask, coefficient=0.3, aggregation=by
    ),
    "value_loss": lambda x, leaf, by: value.value_loss(
        leaf, x.old, x.token_reward, mask=x.mask, value_clip=0.4, aggregation=by
    ),
}


def _rows(x: Draw, rows: list[int]) -> Draw:
    return replace(x, **{f.name: getattr(x, f.name)[rows] for f in fields(x)})


def _drawn(name: str) -> list[Draw]:
    found = [x for x in cases(400, seed=11) if len(x.live) == 6 and 2 <= int(x.live.sum()) <= 5]
    return [fitting(name, x) for x in found[:25]]


def _whole(name: str, x: Draw, by: reduce.Aggregation) -> tuple[Tensor, Tensor]:
    leaf = x.logprob.clone().requires_grad_()
    found = LOSSES[name](x, leaf, by)
    return found.detach(), torch.autograd.grad(found, leaf)[0]


def _counted(mode: reduce.Mode, x: Draw) -> reduce.Aggregation:
    return minibatches.aggregation(mode, mask=x.mask, length=7 if mode == "token-sum" else None, group=x.group)


def _cut(count: int, parts: int, source: random.Random) -> list[list[int]]:
    """Shuffled rows in parts of any size, some of none."""
    found: list[list[int]] = [[] for _ in range(parts)]
    for row in source.sample(range(count), count):
        found[source.randrange(parts)].append(row)
    return found


@pytest.mark.parametrize("name", LOSSES)
def test_any_cut_into_micro_batches(name: str) -> None:
    source = random.Random(0)
    for i, x in enumerate(_drawn(name)):
        by = _counted(MODES[i % len(MODES)], x)
        expected, slope = _whole(name, x, by)
        for parts in (1, 2, 3, 6):
            total, found = torch.zeros_like(expected), torch.zeros_like(slope)
            for rows in _cut(6, parts, source):
                if rows:
                    part, own = _whole(name, _rows(x, rows), by.of_rows(torch.tensor(rows)))
                    total, found[rows] = total + part, own
            torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-13)
            torch.testing.assert_close(found, slope, rtol=1e-12, atol=1e-13, equal_nan=True)


#: Ranks -> the rows of each: unequal shares, and on one of them nothing that trains.
SHARES = {2: [[0, 1, 2, 3], [4, 5]], 3: [[0, 1, 2], [3], [4, 5]]}


def _batches(name: str) -> list[Draw]:
    """Those whose rows 4 and 5, the share of the last rank, train nothing."""
    found = []
    for x in _drawn(name)[:5]:
        mask = x.mask.clone()
        mask[4:] = False
        mask[0, 0] = True
        wide = {n: torch.where(mask, getattr(x, n).nan_to_num(-0.4), torch.nan) for n in _WIDE}
        found.append(replace(x, mask=mask, live=mask.any(1), **wide))
    return found


_WIDE = ("logprob", "old", "ref", "advantage", "value", "token_reward")


def _denominator(mode: reduce.Mode, x: Draw) -> reduce.Aggregation:
    """Counted by each rank on its own rows, and added up over the ranks."""
    if mode == "prompt-mean":
        return _of_prompts(x)
    own = {"token-mean": reduce.row_counts(mask=x.mask).sum(), "token-sum": torch.tensor(7)}
    count = own.get(mode, reduce.live_rows(x.mask).sum()).double()
    dist.all_reduce(count)
    return reduce.Aggregation(mode, count.item())


def _of_prompts(x: Draw) -> reduce.Aggregation:
    """By the rows of all ranks, in order, of which the rank takes its own."""
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, (reduce.row_counts(mask=x.mask).tolist(), x.group.tolist()))
    tokens, group = (torch.tensor([n for one in every for n in one[which]]) for which in (0, 1))
    first = sum(len(one[0]) for one in every[: dist.get_rank()])
    return minibatches.prompt_mean(tokens, group=group).of_rows(torch.arange(first, first + len(x.group)))


def _rank(rank: int, world: int, meeting: str, told: str) -> None:
    """One process: its rows of each batch; a parameter's gradient and the logged loss are sums over ranks."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    found: dict[str, list[Any]] = {}
    for name in LOSSES:
        for i, x in enumerate(_batches(name)):
            mine, weight = _rows(x, SHARES[world][rank]), torch.ones((), dtype=torch.float64, requires_grad=True)
            leaf = torch.where(mine.mask, mine.logprob, 0.0) * weight
            loss = LOSSES[name](mine, leaf, _denominator(MODES[i % len(MODES)], mine))
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
            assert weight.grad is not None
            both = torch.stack([loss.detach(), weight.grad])
            dist.all_reduce(both)
            found.setdefault(name, []).append(both.tolist())
    lost = rejected_fraction(torch.tensor([rank == 0]), live=torch.tensor([True]), denominator=float(world))
    dist.all_reduce(lost)
    found["rejected"] = [lost.item()]
    if rank == 0:
        torch.save(found, told)
    dist.destroy_process_group()


def _expected(name: str, x: Draw, mode: reduce.Mode, world: int) -> list[float]:
    counts = {"token-mean": x.mask.sum(), "token-sum": torch.tensor(7 * world)}
    by = reduce.Aggregation(mode, float(counts.get(mode, x.live.sum()))) if mode != "prompt-mean" else _counted(mode, x)
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)
    loss = LOSSES[name](x, torch.where(x.mask, x.logprob, 0.0) * weight, by)
    return [loss.item(), torch.autograd.grad(loss, weight)[0].item()]


@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_ranks_add_up(world: int, tmp_path: Path) -> None:
    told = tmp_path / "found.pt"
    spawn(_rank, (world, str(tmp_path / "meeting"), str(told)), nprocs=world)  # type: ignore[no-untyped-call]  # torch has no types here
    found = torch.load(told)
    assert found.pop("rejected") == [pytest.approx((world - 1) / world)]
    assert set(found) == set(LOSSES)
    for name, numbers in found.items():
        for i, x in enumerate(_batches(name)):
            assert not x.mask[SHARES[world][-1]].any()
            expected = _expected(name, x, MODES[i % len(MODES)], world)
            assert numbers[i] == pytest.approx(expected, rel=1e-12, abs=1e-13), (name, i)
