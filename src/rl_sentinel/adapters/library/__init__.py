"""Audit of the signal library, ``rl_sentinel.signal``."""

from collections.abc import Iterator

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.library import (
    corrections,
    derivatives,
    estimators,
    kls,
    layouts,
    losses,
    metrics,
    off_policy_masking,
    paths,
    records,
    rewards,
    tokens,
)
from rl_sentinel.adapters.library.signal_import import import_from
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """All boundaries of the signal library in the audited tree."""
    import_from(target.root)
    tables = (
        *(estimators, losses, kls, corrections, rewards, metrics, tokens, layouts),
        *(paths, off_policy_masking, records),
    )
    every = [boundary for table in tables for boundary in table.boundaries(target)]
    yield from every
    yield from derivatives.boundaries(boundary for boundary in every if isinstance(boundary, Boundary))


FRAMEWORK = Framework(name="rl_sentinel", package="rl_sentinel", distribution="rl-sentinel", boundaries=boundaries)
