"""Two calls in turn, by the processor's clock: their medians, and how fast this machine copies memory."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

#: Processor time that one comparison may take, in seconds, and how many rounds it has at least and at most.
SECONDS, LEAST, MOST = 4.0, 5, 51


def in_turn(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Median processor seconds of each call, after one round that is not counted."""
    for call in calls:
        call()
    seen: list[list[float]] = [[] for _ in calls]
    began = time.process_time()
    while len(seen[0]) < LEAST or (time.process_time() - began < SECONDS and len(seen[0]) < MOST):
        for call, times in zip(calls, seen, strict=True):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
    return [statistics.median(times) for times in seen]


def copy_bandwidth() -> float:
    """Bytes per second that a copy of 64 MB moves, both ways counted."""
    source = torch.rand(16 * 1024 * 1024)
    target = torch.empty_like(source)
    return 2 * source.numel() * source.element_size() / in_turn([lambda: target.copy_(source)])[0]
