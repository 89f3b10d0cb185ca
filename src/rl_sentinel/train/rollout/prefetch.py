"""Sampling ahead of learning: each step learns from responses of a policy that is a fixed number of updates old."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch import Tensor

from rl_sentinel.train.rollout.episodes import Episode

#: The weights of a version; None where the sampler has them already.
Weights = Mapping[str, Tensor] | None


class Ahead:
    """Batches that are being sampled, in a thread of their own, while the policy learns.

    With staleness ``k`` the batch of step ``s`` is sampled by version ``max(0, s - k)``, whatever the timing, so that
    equal runs are equal; with 0 it is sampled when it is asked for.

    Example:
        >>> from rl_sentinel.train.rollout.prefetch import Ahead
        >>> ahead = Ahead(lambda step, weights, version: [(step, version)], staleness=1)
        >>> ahead.publish(None, version=0, until=3)
        >>> [ahead.taken(0), ahead.publish(None, version=1, until=3), ahead.taken(1), ahead.taken(2)]
        [[(0, 0)], None, [(1, 0)], [(2, 1)]]
        >>> ahead.close()
    """

    def __init__(self, sample: Callable[[int, Weights, int], list[Any]], *, staleness: int) -> None:
        """``sample`` is called with a step, the weights and their version."""
        self._sample, self._staleness = sample, staleness
        self._asked: dict[int, Future[list[Any]]] = {}
        self._versions: dict[int, tuple[int, Weights]] = {}
        self._thread = ThreadPoolExecutor(1) if staleness else None

    def publish(self, weights: Weights, *, version: int, until: int) -> None:
        """Weights of a version: let them sample the batches that are theirs, before step ``until``.

        Those of later steps are noted alone, for a run that is made longer.
        """
        first = 0 if version == 0 else version + self._staleness
        for step in range(first, version + self._staleness + 1):
            self.ask(step, weights, version, until=until)

    def ask(self, step: int, weights: Weights, version: int, *, until: int) -> None:
        """Sample the batch of a step with the weights of a version, if the step is before ``until``."""
        self._versions[step] = version, weights
        if self._thread is not None and step < until:
            self._asked[step] = self._thread.submit(self._sample, step, weights, version)

    def taken(self, step: int) -> list[Episode]:
        """The batch of a step; waits until it is there."""
        version, weights = self._versions.pop(step)
        if self._thread is None:
            return self._sample(step, weights, version)
        return self._asked.pop(step).result()

    def outstanding(self) -> list[tuple[int, int, Weights]]:
        """Steps that were asked for and not taken, each with its version and weights: what a checkpoint keeps."""
        return [(step, version, weights) for step, (version, weights) in sorted(self._versions.items())]

    def close(self) -> None:
        """Wait for what is being sampled, and drop the rest."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
