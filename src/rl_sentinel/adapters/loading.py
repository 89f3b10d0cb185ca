"""Make a target importable: install small packages, replacement modules, and stand-ins for absent packages."""

import ast
import builtins
import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.stand_ins import StandIn, forbid_stand_ins
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.core.type_parameters import parse_source, read_type_parameters

__all__ = ["forbid_stand_ins", "load", "used"]

#: Packages that never get a stand-in: they are installed, or their import fails.
_REAL = frozenset({"torch", "numpy"}) | sys.stdlib_module_names

#: Exception handlers around an import that make it optional.
_CATCHES = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})

#: Top-level package (or dotted path of a fake) -> where this process got it: "light", "fake" or "stand-in".
used: dict[str, str] = {}


def load(framework: Framework, root: Path, version: str, overlay: Sequence[Path] = ()) -> Target:
    """Make the target importable in this process, and return it.

    ``root`` is the folder that contains the import package; ``overlay`` are the folders of its small packages.
    The change of the import machinery is permanent: one process loads one target.

    Raises:
        Unbindable: if ``root`` does not contain the package.
    """
    root = root.resolve()
    package = framework.package_of(root)
    if framework.package and not package:
        raise Unbindable(f"{framework.package} is absent in {root}, expected the folder that contains it")
    folders = tuple(p.resolve() for p in overlay)
    sys.path[:0] = [str(root), *map(str, folders)]
    read_type_parameters(root)
    importlib.invalidate_caches()
    os.environ.update(framework.environment)
    sys.meta_path.insert(0, _Bare(root, frozenset(framework.bare)))
    fakes = framework.fakes if package == framework.package else {**framework.fakes, **framework.former_fakes}
    for name, factory in fakes.items():
        _install(name, factory(), root)
    builtins.__import__ = _Importer(package, root, folders)
    return Target(root=root, version=version, package=package, earlier=framework.earlier)


def _install(name: str, fake: ModuleType, root: Path) -> None:
    """Register a replacement in ``sys.modules``; attributes and submodules that it lacks become stand-ins."""

    def missing_attribute(attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return vars(fake).setdefault(attribute, StandIn(f"{name}.{attribute}", (root,)))

    vars(fake).setdefault("__getattr__", missing_attribute)
    vars(fake)["__spec__"] = ModuleSpec(name, None)
    sys.modules[name] = fake
    used[name] = "fake"
    parent, _, leaf = name.rpartition(".")
    if parent:
        if parent not in sys.modules:
            package = ModuleType(parent)
            package.__path__ = []
            _install(parent, package, root)
        setattr(sys.modules[parent], leaf, fake)


class _Bare(MetaPathFinder, Loader):
    """Imports some packages of the target without running their ``__init__``."""

    def __init__(self, root: Path, names: frozenset[str]) -> None:
        self.root, self.names = root, names

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if fullname not in self.names:
            return None
        folder = self.root.joinpath(*fullname.split("."))
        spec = spec_from_file_location(
            fullname, folder / "__init__.py", loader=self, submodule_search_locations=[str(folder)]
        )
        return spec if folder.is_dir() else None

    def exec_module(self, module: ModuleType) -> None:
        """Do not run ``__init__``.

        On first access, names that it imports from submodules are resolved; other imported names are stand-ins.
        """
        file = Path(module.__path__[0], "__init__.py")
        exported = dict(_exports(file)) if file.is_file() else {}

        def exported_name(name: str) -> Any:  # noqa: ANN401 - any attribute of the package
            if name not in exported:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            if exported[name]:
                return getattr(importlib.import_module(f"{module.__name__}{exported[name]}"), name)
            return StandIn(f"{module.__name__}.{name}", (self.root,))

        vars(module)["__getattr__"] = exported_name


class _Importer:
    """A replacement for ``__import__``: code of the target gets stand-ins for absent packages.

    Stand-ins are not put into ``sys.modules``: torch and other packages look there for installed packages.
    """

    def __init__(self, package: str, root: Path, overlay: tuple[Path, ...]) -> None:
        self.package, self.root, self.overlay = package, root, overlay
        self.real = builtins.__import__
        self.stand_ins: dict[str, StandIn] = {}
        self.noted: set[str] = set()

    def __call__(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - the signature of __import__
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:  # noqa: ANN401 - a module, or a stand-in
        try:
            module = self.real(name, globals, locals, fromlist or (), level)
        except ModuleNotFoundError as error:
            top, lacking = name.partition(".")[0], (error.name or "").partition(".")[0]
            # Another package may lack a submodule of a fake: then it counts as absent itself.
            absent = error.name == top or used.get(lacking) == "fake"
            if level or not absent or not self._replaces(top, sys._getframe(1)):  # noqa: SLF001
                raise
            if top in sys.modules and not fromlist:
                return sys.modules[top]
            return self._stand_in(top, name if fromlist else top)
        if not level and self.overlay:
            top = name.partition(".")[0]
            if top not in self.noted:
                self._note_light(top)
        return module

    def _replaces(self, top: str, frame: FrameType) -> bool:
        file = frame.f_code.co_filename
        if top in _REAL or top == self.package or not Path(file).is_relative_to(self.root):
            return False
        return not any(first <= frame.f_lineno <= last for first, last in _optional_lines(file))

    def _stand_in(self, top: str, dotted: str) -> StandIn:
        used.setdefault(top, "stand-in")
        stand_in = self.stand_ins.setdefault(top, StandIn(top, (self.root,)))
        for part in dotted.split(".")[1:]:
            stand_in = getattr(stand_in, part)
        return stand_in

    def _note_light(self, top: str) -> None:
        if top not in sys.modules:
            return
        self.noted.add(top)
        place = getattr(sys.modules[top], "__file__", None) or ""
        if any(Path(place).is_relative_to(folder) for folder in self.overlay):
            used.setdefault(top, "light")


@cache
def _optional_lines(file: str) -> tuple[tuple[int, int], ...]:
    """First and last line of each ``try`` body whose handler ignores a failed import."""
    return tuple(
        (node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno)
        for node in _statements(parse_source(Path(file).read_bytes()))
        if isinstance(node, ast.Try) and any(_ignores_import_error(handler) for handler in node.handlers)
    )


def _exports(file: Path) -> Iterator[tuple[str, str]]:
    """Names in ``from ... import`` of a package's ``__init__``, each with its submodule (``.loss``) if it has one."""
    for node in _statements(parse_source(file.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            near = f".{node.module}" if node.level == 1 and node.module else ""
            yield from ((alias.asname or alias.name, near) for alias in node.names)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements, exception handlers and cases below a node, at any depth."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, block, ()):
            yield child
            yield from _statements(child)


def _ignores_import_error(handler: ast.ExceptHandler) -> bool:
    if isinstance(handler.body[-1], ast.Raise):
        return False
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {getattr(k, "id", getattr(k, "attr", "")) for k in kinds if k is not None}
    return handler.type is None or bool(names & _CATCHES)
