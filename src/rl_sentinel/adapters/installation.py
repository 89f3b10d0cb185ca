"""Installation instructions in the header of a stand-alone script: packages, Python version, setup lines."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

#: The first line of a recorded script, before which no statement may stand.
_FUTURE = "from __future__ import annotations"


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
    """

    packages: str = "numpy"
    alone: str = ""
    python: str = ""
    note: str = ""
    setup: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()

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
        return [*imports, *([""] if setup else []), *setup, *rest]


def requirement(name: str, version: str) -> tuple[str, str]:
    """The pip requirement of a framework and a note: the pinned release, or the folder of a checkout."""
    if version:
        return f"{name}=={version}", ""
    return f"./{name}", f"./{name}: the checkout that was audited"
