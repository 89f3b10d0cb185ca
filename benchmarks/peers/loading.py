"""Fetching a release and making it importable, as an audit does: what is absent is stood in for."""

from collections.abc import Iterator
from pathlib import Path

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.loading import load
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.source.fetch import source
from rl_sentinel.audit.source.overlay import overlays
from rl_sentinel.audit.source.target_spec import TargetSpec, parse_target
from rl_sentinel.core.boundary import Boundary


def audited(release: str) -> Target:
    """A release of a framework that we audit."""
    target = parse_target(release)
    found = source(target)
    return load(
        target.framework, found.root, found.version, [Path(p) for p in overlays(target.framework, found.version)]
    )


def _nothing(_target: Target) -> Iterator[Boundary]:
    return iter(())


def other(release: str) -> Target:
    """A release of a framework that we do not audit yet."""
    name, _, version = release.partition("==")
    framework = Framework(name=name, package=name, distribution=name, boundaries=_nothing)
    found = source(TargetSpec(release, "release", framework, version=version))
    return load(framework, found.root, found.version)
