"""A framework whose published tests are asked, and what of it is ours for that time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rl_sentinel.adapters.framework import Framework


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """``ours`` are functions with a framework's signature, by the dotted path that each takes the place of.

    ``release`` is a source distribution that holds the tests, ``""`` where none does; ``revision`` is taken
    of a git folder. ``named`` finds test files, besides by the names in ``ours``: registries hand functions out
    under names of their own. ``fakes`` are those of the framework and such as its tests need.
    """

    framework: Framework
    ours: Mapping[str, Callable[..., Any]]
    release: str = ""
    revision: str = ""
    named: tuple[str, ...] = ()

    @property
    def words(self) -> frozenset[str]:
        """Names of which a test file holds at least one, if it is run."""
        return frozenset({path.rpartition(".")[2] for path in self.ours} | set(self.named))
