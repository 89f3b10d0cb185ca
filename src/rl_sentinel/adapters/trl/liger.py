"""Helpers that let TRL's trainers run Liger's fused losses without a GPU and without ``torch.compile``."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

PACKAGE = "liger_kernel"

#: The module from which transformers takes the Liger layers that it puts into a model.
LAYERS = f"{PACKAGE}.transformers"


def installed() -> bool:
    """Whether Liger is installed."""
    return importlib.util.find_spec(PACKAGE) is not None


@contextmanager
def layers_unchanged() -> Iterator[None]:
    """Prevent transformers from installing Liger's layers in a model; they compute the same values but need a GPU."""
    fake = ModuleType(LAYERS)
    fake._apply_liger_kernel_to_instance = _leave_layers  # type: ignore[attr-defined] # noqa: SLF001 - as Liger's
    before = sys.modules.get(LAYERS)
    sys.modules[LAYERS] = fake
    try:
        yield
    finally:
        del sys.modules[LAYERS]
        if before is not None:
            sys.modules[LAYERS] = before


def _leave_layers(model: object, **_options: object) -> None:
    """Leave the model unchanged."""


def without_compiler(trainer: Any) -> Any:  # noqa: ANN401 - a trainer
    """Turn off ``torch.compile`` in the trainer's Liger losses, which only affects speed. Return the trainer."""
    for value in vars(trainer).values():
        if type(value).__module__.startswith(f"{PACKAGE}."):
            value.compiled = False
    return trainer


def forwarded(_wrapped: object, _module: object, method: Callable[..., Any], *arguments: Any, **more: Any) -> Any:  # noqa: ANN401 - as trl's
    """Call the method directly, in place of a call through the data-parallel wrapper."""
    return method(*arguments, **more)
