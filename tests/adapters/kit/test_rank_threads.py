"""Ranks as threads: they meet in collectives, and one that fails releases the others."""

from itertools import groupby

import pytest
import torch

from rl_sentinel.adapters.kit import rank_threads
from rl_sentinel.adapters.kit.rank_threads import gather_from_ranks, rank_number, run_on_ranks


def test_ranks_meet() -> None:
    """Each rank has its number, and sees the values of all in their order."""
    assert run_on_ranks(3, lambda rank: (rank_number(), gather_from_ranks(10 * rank))) == [
        (n, [0, 10, 20]) for n in range(3)
    ]


def test_one_rank_is_this_thread() -> None:
    """Alone there is no one to wait for."""
    assert run_on_ranks(1, lambda rank: (rank, gather_from_ranks("own"))) == [(0, ["own"])]
    assert rank_number() == 0


def test_gradients_pass() -> None:
    """A sum over ranks is one graph: the gradient of each rank's share arrives."""
    weight = torch.tensor([2.0, 3.0], requires_grad=True)
    total = run_on_ranks(2, lambda rank: torch.stack(gather_from_ranks(weight[rank] ** 2)).sum())[0]
    total.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [4.0, 6.0]


def test_one_rank_runs_at_a_time() -> None:
    """Between two collectives a rank is alone: what it does is not interleaved with the others."""
    steps: list[int] = []

    def work(rank: int) -> None:
        for _ in range(2):
            for _ in range(50):
                steps.append(rank)
                torch.get_rng_state()
                torch.rand(3)
            gather_from_ranks(None)

    run_on_ranks(3, work)
    runs = [rank for rank, _ in groupby(steps)]
    assert len(steps) == 300
    assert len(runs) <= 6


def test_an_error_of_one_rank_is_raised() -> None:
    """The ranks that wait for it are released, and its own error is the one that counts."""

    def work(rank: int) -> list[int]:
        if rank == 1:
            raise ValueError("rank 1 has no data")
        return gather_from_ranks(rank)

    with pytest.raises(ValueError, match="rank 1 has no data"):
        run_on_ranks(2, work)


def test_ranks_that_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that goes on without a collective would hang the others."""
    monkeypatch.setattr(rank_threads, "LONGEST_WAIT", 0.2)
    with pytest.raises(RuntimeError, match=r"^one of 2 ranks waited 0.2 s at a collective: the others call other "):
        run_on_ranks(2, lambda rank: gather_from_ranks(rank) if rank == 0 else None)
