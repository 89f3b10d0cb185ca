"""A mutant in the place of its module, for whoever imports that afterwards."""

import ast
import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from mutants.sites import Mutant

#: The package that is mutated.
SIGNAL = "rl_sentinel.signal"


def plant(mutant: Mutant) -> None:
    """Have the mutated module be imported from its tree; nothing of the library may have been imported before."""
    name = f"{SIGNAL}.{mutant.module.removesuffix('.py').replace('/', '.')}"
    sys.meta_path.insert(0, _Replaced(name, mutant.tree))


class _Replaced(importlib.abc.MetaPathFinder):
    """Imports one module from a tree instead of from its file."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name, self.tree = name, tree

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ANN401, ARG002
        if fullname != self.name:
            return None
        place = Path(sys.modules["rl_sentinel"].__file__ or "").parents[1].joinpath(*fullname.split("."))
        loader = _Loader(fullname, str(place.with_suffix(".py")))
        loader.tree = self.tree
        return importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)


class _Loader(SourceFileLoader):
    tree: ast.Module

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the loader's signature
        return compile(self.tree, self.path, "exec")
