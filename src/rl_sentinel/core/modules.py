"""Walk a package and collect an object of the same name from each of its modules."""

import importlib
import pkgutil
from types import ModuleType
from typing import Any


def defined(package: ModuleType, name: str) -> dict[str, Any]:
    """Return module name -> value of ``name``, for each module of ``package`` that defines it.

    Example:
        >>> from rl_sentinel.core.modules import defined
        >>> import rl_sentinel.core
        >>> sorted(defined(rl_sentinel.core, "EXCLUDED"))
        ['batch']
    """
    objects = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda i: i.name):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        if name in vars(module):
            objects[info.name] = vars(module)[name]
    return objects
