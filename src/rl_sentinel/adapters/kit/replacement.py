"""Replace modules and their globals temporarily, and make instances of classes without ``__init__``."""

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def nothing(*_passed: object, **_options: object) -> None:
    """Do nothing, in place of a function that needs a device, waits or logs."""


@contextmanager
def replaced_globals(*modules: dict[str, Any], **values: Any) -> Iterator[None]:  # noqa: ANN401 - globals of a module
    """Set globals of the modules until the context ends; a name that a module lacks is not added to it.

    Args:
        modules: the ``__globals__`` of functions, or ``vars`` of modules.
        values: name -> value in all of these modules.
    """
    originals = [{name: module[name] for name in values if name in module} for module in modules]
    try:
        for module, original in zip(modules, originals, strict=True):
            module.update({name: values[name] for name in original})
        yield
    finally:
        for module, original in zip(modules, originals, strict=True):
            module.update(original)


@contextmanager
def installed_modules(modules: Mapping[str, Any]) -> Iterator[None]:
    """Put modules in ``sys.modules`` until the context ends; other modules that are imported meanwhile stay.

    ``unittest.mock.patch.dict`` removes those, so that a later import creates their classes a second time.
    """
    before = {name: sys.modules[name] for name in modules if name in sys.modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            sys.modules.pop(name, None)
        sys.modules.update(before)


def bare_instance(owner: type, **attributes: object) -> Any:  # noqa: ANN401 - of that class
    """An instance with these attributes; ``__init__`` does not run, because it would load models or start engines.

    If the class is abstract, it is an instance of a subclass without abstract methods.
    """
    kind: Any = owner
    if inspect.isabstract(owner):
        kind = type(owner.__name__, (owner,), {})
        kind.__abstractmethods__ = frozenset()  # a class body cannot set it: ABCMeta computes it again
    instance: Any = object.__new__(kind)
    vars(instance).update(attributes)
    return instance
