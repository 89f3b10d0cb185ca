"""Public functions of ``signal`` are plain ``def`` at the top of a module, where the other meta-tests look for them."""

import importlib
import pkgutil
import typing

import pytest
from test_formulas import public_functions

from rl_sentinel import signal


@pytest.mark.slow
def test_functions_are_defined_at_the_top_of_a_module() -> None:
    for module in pkgutil.walk_packages(signal.__path__, f"{signal.__name__}."):
        if {"kernels", "validation", "requirements"} & set(module.name.split(".")):
            continue
        found = vars(importlib.import_module(module.name))
        path = module.name.removeprefix(f"{signal.__name__}.")
        own = {
            name
            for name, value in found.items()
            if not name.startswith("_") and callable(value) and not isinstance(value, type)
            if getattr(value, "__module__", module.name) in {module.name, "functools"}
            if typing.get_origin(value) is None
        }
        assert {f"{path}.{name}" for name in own} <= public_functions(), module.name
