"""The signal library as a target of the audit: boundaries for each function that computes a signal."""

from collections.abc import Iterator

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.library import (
    corrections,
    estimators,
    kls,
    layouts,
    losses,
    metrics,
    paths,
    records,
    rewards,
    tokens,
)
from rl_sentinel.adapters.library.copies import import_from
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Every boundary of the signal library in the tree under audit."""
    import_from(target.root)
    for table in (estimators, losses, kls, corrections, rewards, metrics, tokens, layouts, paths, records):
        yield from table.boundaries(target)


FRAMEWORK = Framework(name="rl_sentinel", package="rl_sentinel", distribution="rl-sentinel", boundaries=boundaries)
