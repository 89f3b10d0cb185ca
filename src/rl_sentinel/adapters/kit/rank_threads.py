"""Simulate the ranks of a process group with threads that synchronize at collectives."""

import threading
from collections.abc import Callable
from typing import Any

import torch

#: Seconds that a rank waits for the other ranks.
LONGEST_WAIT = 30.0


class World:
    """State that the ranks share: one value per rank, a barrier, and a lock that lets one rank run at a time.

    Only one rank runs at a time, because parallel threads can deadlock in torch: one reads the state of the random
    generator (it holds the GIL and waits for the generator's lock), the other draws numbers (the other way round).
    """

    def __init__(self, size: int) -> None:
        """Create the state for ``size`` ranks."""
        self.size = size
        self.values: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)
        self.turn = threading.Lock()

    def exchange(self, rank: int, value: Any) -> list[Any]:  # noqa: ANN401 - what a collective carries
        """Share this rank's value; return the values of all ranks, in rank order."""
        self.values[rank] = value
        self._meet()
        values = list(self.values)
        self._meet()
        return values

    def _meet(self) -> None:
        """Release the lock, wait for the other ranks, and acquire the lock again."""
        self.turn.release()
        try:
            self.barrier.wait(LONGEST_WAIT)
        finally:
            self.turn.acquire()


class Rank(threading.Thread):
    """A thread that acts as one rank: it runs ``work(number)`` and stores the result or the error."""

    def __init__(self, world: World, number: int, work: Callable[[int], Any]) -> None:
        """Create the rank with this number."""
        super().__init__(daemon=True)
        self.world, self.number, self.work = world, number, work
        self.differentiates = torch.is_grad_enabled()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run the work; after an error, stop the ranks that wait for this rank."""
        try:
            with self.world.turn, torch.set_grad_enabled(self.differentiates):
                self.result = self.work(self.number)
        except BaseException as error:  # noqa: BLE001 - raised again where the ranks are joined
            self.error = error
            self.world.barrier.abort()


def run_on_ranks(size: int, work: Callable[[int], Any]) -> list[Any]:
    """Run ``work(rank)`` on each rank and return the results in rank order; a single rank runs in this thread.

    Raises:
        BaseException: the first error of a rank, other than a broken barrier.
        RuntimeError: if the ranks do not call the same collectives, or a rank waits longer than ``LONGEST_WAIT``.
    """
    if size == 1:
        return [work(0)]
    world = World(size)
    # After a fork, the first parallel operation replaces torch's thread pool: trigger it before the threads start.
    torch.set_num_threads(torch.get_num_threads())
    ranks = [Rank(world, number, work) for number in range(size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    errors = [rank.error for rank in ranks if rank.error is not None]
    causes = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
    if causes:
        raise causes[0]
    if errors:
        message = (
            f"one of {size} ranks waited {LONGEST_WAIT:g} s at a collective: the others call other collectives, or are "
            "slower than that"
        )
        raise RuntimeError(message) from errors[0]
    return [rank.result for rank in ranks]


def gather_from_ranks(value: Any) -> list[Any]:  # noqa: ANN401 - what a collective carries
    """All-gather: the value of each rank; outside of :func:`run_on_ranks`, only the caller's value."""
    here = threading.current_thread()
    return here.world.exchange(here.number, value) if isinstance(here, Rank) else [value]


def rank_number() -> int:
    """The number of the current rank; 0 outside of :func:`run_on_ranks`."""
    here = threading.current_thread()
    return here.number if isinstance(here, Rank) else 0


def rank_count() -> int:
    """The number of ranks; 1 outside of :func:`run_on_ranks`."""
    here = threading.current_thread()
    return here.world.size if isinstance(here, Rank) else 1
