"""Prefetch rollouts in a background thread, a fixed number of updates ahead of training."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch import Tensor

from rl_sentinel.train.rollout.episodes import Episode

#: The weights of a version; None if the sampler has them already.
Weights = Mapping[str, Tensor] | None


class Prefetcher:
    """Samples the batches of later steps in a thread while the policy trains.

    With staleness ``k``, the batch of step ``s`` is sampled by version ``max(0, s - k)``, whatever the timing, so that
    two runs of one recipe are equal. With staleness 0 it is sampled when it is taken.

    Example:
        >>> from rl_sentinel.train.rollout.prefetch import Prefetcher
        >>> prefetcher = Prefetcher(lambda step, weights, version: [(step, version)], staleness=1)
        >>> prefetcher.publish(None, version=0, until=3)
        >>> [prefetcher.take(0), prefetcher.publish(None, version=1, until=3), prefetcher.take(1), prefetcher.take(2)]
        [[(0, 0)], None, [(1, 0)], [(2, 1)]]
        >>> prefetcher.close()
    """

    def __init__(self, sample: Callable[[int, Weights, int], list[Any]], *, staleness: int) -> None:
        """Store the staleness and ``sample``, which is called with a step, the weights and their version."""
        self._sample, self._staleness = sample, staleness
        self._futures: dict[int, Future[list[Any]]] = {}
        self._versions: dict[int, tuple[int, Weights]] = {}
        self._thread = ThreadPoolExecutor(1) if staleness else None

    def publish(self, weights: Weights, *, version: int, until: int) -> None:
        """Record the batches that a new version must sample; with staleness, queue those of steps before ``until``.

        Later steps are only recorded, for a checkpoint from which the run is extended.
        """
        first = 0 if version == 0 else version + self._staleness
        for step in range(first, version + self._staleness + 1):
            self.submit(step, weights, version, until=until)

    def submit(self, step: int, weights: Weights, version: int, *, until: int) -> None:
        """Record the batch of one step; with staleness, queue it for sampling if the step is before ``until``."""
        self._versions[step] = version, weights
        if self._thread is not None and step < until:
            self._futures[step] = self._thread.submit(self._sample, step, weights, version)

    def take(self, step: int) -> list[Episode]:
        """The batch of a step; blocks until it is sampled."""
        version, weights = self._versions.pop(step)
        if self._thread is None:
            return self._sample(step, weights, version)
        return self._futures.pop(step).result()

    def call(self, function: Callable[[], list[Any]]) -> list[Any]:
        """Call a function that uses the sampler, after all batches that were submitted before."""
        return function() if self._thread is None else self._thread.submit(function).result()

    def pending(self) -> list[tuple[int, int, Weights]]:
        """Steps that were submitted and not taken, with version and weights, for a checkpoint."""
        return [(step, version, weights) for step, (version, weights) in sorted(self._versions.items())]

    def close(self) -> None:
        """Wait for the batch that is being sampled, and cancel all others."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
