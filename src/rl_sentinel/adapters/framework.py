"""``Framework``: the record of a framework; each adapter package defines one as ``FRAMEWORK``."""

import importlib
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

    Attributes:
        name: name in specs and reports.
        package: top-level import package; a folder that has it is a checkout of the framework.
        former: earlier names of the package, newest first.
        distribution: name on the package index.
        version_file: file in the package that states the version, if it is not a usual one.
        boundaries: yields the boundaries of a target.
        light: a function from a version (``""`` for a checkout) to the pinned requirements at run time.
        installation: a function from a version to the installation that a stand-alone script needs.
        earlier: dotted path of a module or class -> its path in releases before it was moved and renamed.
        fakes: dotted module name -> factory of its replacement.
        former_fakes: more replacements, for modules that exist only under the current package name.
        bare: packages of the target whose ``__init__`` is not run, because it starts an engine.
        environment: environment variables of the worker.
    """

    name: str
    package: str
    former: tuple[str, ...] = ()
    distribution: str = ""
    version_file: str = ""
    boundaries: Callable[[Target], Iterator[Boundary | Unbound]]
    light: Callable[[str], str] = lambda _version: ""
    installation: Callable[[str], Installation] = lambda _version: Installation()
    earlier: Mapping[str, str] = field(default_factory=dict)
    fakes: Mapping[str, Callable[[], ModuleType]] = field(default_factory=dict)
    former_fakes: Mapping[str, Callable[[], ModuleType]] = field(default_factory=dict)
    bare: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def packages(self) -> tuple[str, ...]:
        """All names of the import package, newest first."""
        return (self.package, *self.former)

    def places(self) -> Iterator[tuple[str, str]]:
        """Folders of a checkout that may contain the import package, each with its name; the newest name is first."""
        for package in self.packages:
            yield from ((folder, package) for folder in ("", "src", package.replace("_", "-")))

    def package_of(self, root: Path) -> str:
        """The import package in a folder; empty if the folder has none."""
        return next((package for package in self.packages if (root / package).is_dir()), "")


def boundaries_of(package: str, names: str) -> Callable[[Target], Iterator[Boundary | Unbound]]:
    """The function that yields the boundaries of the modules of a package with these names, in this order."""
    modules = [importlib.import_module(f"{package}.{name}") for name in names.split()]

    def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
        for module in modules:
            yield from module.boundaries(target)

    return boundaries
