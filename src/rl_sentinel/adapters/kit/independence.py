"""Test whether samples share data: write to each sample in turn and compare the others before and after."""

import copy
from collections.abc import Iterator, MutableMapping, MutableSequence
from typing import Any

#: What is written: a key and an item that no framework uses.
_WRITTEN = "written by another sample"


def changed_by_others(samples: list[Any]) -> list[float]:
    """The number of other samples to which a write changes each sample: 0 where all data is its own.

    The written values are taken away again, so that the data is left as it was.
    """
    counts = [0.0] * len(samples)
    for n, sample in enumerate(samples):
        before = copy.deepcopy(samples)
        written = list(_containers(sample, set()))
        for one in written:
            if isinstance(one, MutableMapping):
                one[_WRITTEN] = True
            else:
                one.append(_WRITTEN)
        for other in range(len(samples)):
            counts[other] += other != n and samples[other] != before[other]
        for one in written:
            one.pop(_WRITTEN) if isinstance(one, MutableMapping) else one.pop()
    return counts


def _containers(value: object, visited: set[int]) -> Iterator[Any]:
    """The mappings and sequences that can be written to in a value, each once."""
    if id(value) in visited:
        return
    visited.add(id(value))
    if isinstance(value, MutableMapping):
        yield value
        children = list(value.values())
    elif isinstance(value, MutableSequence):
        yield value
        children = list(value)
    else:
        return
    for child in children:
        yield from _containers(child, visited)
