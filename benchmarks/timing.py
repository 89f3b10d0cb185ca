"""Two calls in turn, by the processor's clock: their medians, and how fast this machine copies memory."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

#: Processor time that one comparison may take, in seconds, and how many rounds it has at least and at most.
SECONDS, LEAST, MOST = 4.0, 5, 51

#: Seconds that one turn lasts at least: a shorter call is repeated, since a clock and a cold cache weigh on it.
TURN = 0.002


def in_turn(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Median processor seconds of each call, after one round that is not counted."""
    times_each = [_repeats(call) for call in calls]
    seen: list[list[float]] = [[] for _ in calls]
    began = time.process_time()
    while len(seen[0]) < LEAST or (time.process_time() - began < SECONDS and len(seen[0]) < MOST):
        for call, repeats, times in zip(calls, times_each, seen, strict=True):
            times.append(_turn(call, repeats) / repeats)
    return [statistics.median(times) for times in seen]


def _repeats(call: Callable[[], Any]) -> int:
    """How often a call is made in a turn."""
    call()
    return max(1, round(TURN / max(_turn(call, 1), 1e-6)))


def _turn(call: Callable[[], Any], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        call()
    return time.process_time() - start


def copy_bandwidth() -> float:
    """Bytes per second that a copy of 64 MB moves, both ways counted."""
    source = torch.rand(16 * 1024 * 1024)
    target = torch.empty_like(source)
    return 2 * source.numel() * source.element_size() / in_turn([lambda: target.copy_(source)])[0]
