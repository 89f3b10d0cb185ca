"""What an adapter module defines as ``FRAMEWORK``."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType

from rl_sentinel.adapters.installation import Installation
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One framework under audit.

    ``package`` is the top-level import package, which also marks a checkout; ``distribution`` its
    name on the package index; ``version_file`` the file of the package that states its version, where
    that is no usual one; ``light`` the packages that must really run, with pins, for a
    version (``""`` for a checkout); ``installation`` what a stand-alone
    script needs of it; ``doubles`` declared doubles, each by its dotted module name;
    ``bare`` the target's own packages whose ``__init__`` is not run, since it starts an engine.
    """

    name: str
    package: str
    distribution: str = ""
    version_file: str = ""
    boundaries: Callable[[Target], Iterator[Boundary | Unbound]]
    light: Callable[[str], str] = lambda _version: ""
    installation: Callable[[str], Installation] = lambda _version: Installation()
    doubles: Mapping[str, Callable[[], ModuleType]] = field(default_factory=dict)
    bare: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
