"""Installation instructions in the header of a stand-alone script: packages, Python version, setup lines."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

#: The first line of a recorded script, before which no statement may stand.
_FUTURE = "from __future__ import annotations"

#: Lines of a script that let packages be imported that its calls do not use: those not installed become empty modules.
_ABSENT_PACKAGES = """
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution
from types import ModuleType, SimpleNamespace


def empty_class(owner, name):
    if name.startswith("__"):
        raise AttributeError(name)
    return EmptyClass(name, (EmptyObject,), {{}})


class EmptyClass(type):
    __getattr__ = empty_class

    def __call__(cls, *given, **options):
        plain = cls.__init__ is SimpleNamespace.__init__
        decorates = plain and len(given) == 1 and callable(given[0]) and not options
        return given[0] if decorates else super().__call__(*given, **options)


class EmptyObject(SimpleNamespace):
    def __call__(self, decorated):
        return decorated


class EmptyModule(ModuleType):
    __path__ = []
    __version__ = "999"
    __getattr__ = empty_class


class NewestVersion(Distribution):
    def __init__(self, package):
        self.package = package

    def read_text(self, filename):
        return f"Name: {{self.package}}\\nVersion: 999" if filename == "METADATA" else None

    def locate_file(self, path):
        raise FileNotFoundError(path)


class AbsentPackages(MetaPathFinder, Loader):
    packages = {packages}

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in self.packages else None

    def create_module(self, spec):
        return EmptyModule(spec.name)

    def exec_module(self, module):
        pass

    def find_distributions(self, context):
        return [NewestVersion(context.name)] if context.name in self.packages else []


sys.meta_path.append(AbsentPackages())  # last: an installed package is imported as it is
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An environment in which a script runs without RL-Sentinel.

    Attributes:
        packages: pip requirements, installed with their dependencies.
        alone: pip requirements installed without dependencies, which would need another torch or a GPU.
        python: Python version, if the framework needs a newer version than RL-Sentinel does.
        note: comment after the command.
        setup: module -> lines to run before its functions are called.
        folders: folders of a project from which its code is imported, relative to where the script runs.
        actors: names of classes that may be Ray actors. Such a name is a handle; the class is in its metadata.
        absent: module -> packages that it imports and that no call uses: they need a GPU, or the calls replace them.
            Unless they are installed, they become empty modules.
    """

    packages: str = "numpy"
    alone: str = ""
    python: str = ""
    note: str = ""
    setup: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def command(self, torch: str) -> str:
        """The shell command that prepares a new environment, after the Python version if the framework needs one."""
        line = f"pip install torch=={torch} {self.packages}"
        line += f" && pip install --no-deps {self.alone}" if self.alone else ""
        return (f"Python {self.python}: " if self.python else "") + line + (f"  # {self.note}" if self.note else "")

    def lines(self, script: list[str]) -> list[str]:
        """Adapt the lines of a recorded script to this environment."""
        end = max((n for n, line in enumerate(script, 1) if line.startswith(("import ", "from "))), default=0)
        imports, rest = script[:end], script[end:]
        used = dict.fromkeys(lines for module, lines in self.setup.items() if any(module in i for i in imports))
        setup = [line for lines in used for line in lines]
        for name in self.actors:
            if any(line.startswith("from ") and line.endswith(f" import {name}") for line in imports):
                unwrapped = f'{name}.__ray_metadata__.modified_class if hasattr({name}, "__ray_metadata__") else {name}'
                setup.append(f"{name} = {unwrapped}")
        if self.folders:
            at = imports.index(_FUTURE) + 1 if _FUTURE in imports else 0
            imports[at:at] = ["from sys import path", "", f"path[:0] = {json.dumps(self.folders)}"]
        absent = [
            package for module, names in self.absent.items() if any(module in i for i in imports) for package in names
        ]
        if absent:
            at = imports.index("import sys") + 1
            imports[at:at] = _ABSENT_PACKAGES.format(packages=absent).splitlines()
        return [*imports, *([""] if setup else []), *setup, *rest]


def requirement(name: str, version: str) -> tuple[str, str]:
    """The pip requirement of a framework and a note: the pinned release, or the folder of a checkout."""
    if version:
        return f"{name}=={version}", ""
    return f"./{name}", f"./{name}: the checkout that was audited"
