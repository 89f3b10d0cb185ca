"""Check whether samples share mutable data: write to each sample in turn, and compare all other samples."""

import copy
from collections.abc import Iterator, MutableMapping, MutableSequence
from typing import Any

#: Key and item that is written; no framework uses it.
_MARK = "written by another sample"


def changed_by_others(samples: list[Any]) -> list[float]:
    """For each sample, how many other samples change it when they are written to; 0 if it shares no data.

    The written values are removed again.
    """
    counts = [0.0] * len(samples)
    for n, sample in enumerate(samples):
        before = copy.deepcopy(samples)
        written = list(_containers(sample, set()))
        for one in written:
            if isinstance(one, MutableMapping):
                one[_MARK] = True
            else:
                one.append(_MARK)
        for other in range(len(samples)):
            counts[other] += other != n and samples[other] != before[other]
        for one in written:
            one.pop(_MARK) if isinstance(one, MutableMapping) else one.pop()
    return counts


def _containers(value: object, visited: set[int]) -> Iterator[Any]:
    """All mutable mappings and sequences inside a value, each once."""
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
