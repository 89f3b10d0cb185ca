"""``Framework``: the record that each adapter package defines as ``FRAMEWORK``."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from rl_sentinel.adapters.installation import Installation
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One framework under audit.

    ``package`` is the top-level import package, which also marks a checkout; ``former`` are its earlier names,
    newest first, each at the top, in ``src`` or in a folder of its name with dashes; ``distribution`` its
    name on the package index; ``version_file`` the file of the package that states its version, where
    that is no usual one; ``light`` the packages that must really run, with pins, for a
    version (``""`` for a checkout); ``installation`` what a stand-alone
    script needs of it; ``doubles`` declared doubles, each by its dotted module name, and
    ``former_doubles`` those of modules that a former layout lacks;
    ``bare`` the target's own packages whose ``__init__`` is not run, since it starts an engine.
    """

    name: str
    package: str
    former: tuple[str, ...] = ()
    distribution: str = ""
    version_file: str = ""
    boundaries: Callable[[Target], Iterator[Boundary | Unbound]]
    light: Callable[[str], str] = lambda _version: ""
    installation: Callable[[str], Installation] = lambda _version: Installation()
    doubles: Mapping[str, Callable[[], ModuleType]] = field(default_factory=dict)
    former_doubles: Mapping[str, Callable[[], ModuleType]] = field(default_factory=dict)
    bare: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def packages(self) -> tuple[str, ...]:
        """The names of the import package, newest first."""
        return (self.package, *self.former)

    def places(self) -> Iterator[tuple[str, str]]:
        """Folders of a checkout that may hold the import package, each with the package; the newest layout first."""
        for package in self.packages:
            yield from ((folder, package) for folder in ("", "src", package.replace("_", "-")))

    def package_of(self, root: Path) -> str:
        """The import package that a folder holds; empty if it holds none."""
        return next((package for package in self.packages if (root / package).is_dir()), "")
