"""Simulate the ranks of a process group by threads of one process that synchronise at collectives."""

import threading
from collections.abc import Callable
from typing import Any

import torch

#: Seconds after which a rank that waits for the others gives up.
LONGEST_WAIT = 30.0


class World:
    """What the ranks share: a place for the value of each, the barrier at which they meet, and whose turn it is.

    One rank runs at a time, until it meets the others. In parallel, torch can deadlock: a thread that reads the state
    of the random generator waits for the generator's lock and holds Python's, while one that draws numbers waits for
    Python's and holds the generator's.
    """

    def __init__(self, size: int) -> None:
        """Take the number of ranks."""
        self.size = size
        self.values: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)
        self.turn = threading.Lock()

    def exchange(self, rank: int, value: Any) -> list[Any]:  # noqa: ANN401 - what a collective carries
        """The values of all ranks, in their order."""
        self.values[rank] = value
        self._meet()
        values = list(self.values)
        self._meet()
        return values

    def _meet(self) -> None:
        """Wait for the others, who take their turns meanwhile."""
        self.turn.release()
        try:
            self.barrier.wait(LONGEST_WAIT)
        finally:
            self.turn.acquire()


class Rank(threading.Thread):
    """One process of a group: it runs ``work`` with its number, and keeps the answer or the error."""

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
            with self.world.turn, torch.set_grad_enabled(self.differentiates):
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


def rank_number() -> int:
    """The number of the rank that asks; 0 outside of ranks."""
    here = threading.current_thread()
    return here.number if isinstance(here, Rank) else 0
