"""Replace globals of a target's modules temporarily, and make instances of its classes without ``__init__``."""

import inspect
from collections.abc import Iterator
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
