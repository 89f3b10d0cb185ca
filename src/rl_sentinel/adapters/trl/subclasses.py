"""Experimental trainers of a TRL release that are subclasses of ``GRPOTrainer``."""

import inspect
from collections.abc import Iterator
from pathlib import Path

from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO


def overriding(target: Target, method: str) -> list[str]:
    """Paths of the subclasses that override the method."""
    return [path for path in _subclasses(target) if method in vars(target.find(path))]


def _subclasses(target: Target) -> Iterator[str]:
    package = "trl.experimental"
    if not target.has(package) or target.fails(package):
        return
    folder = next(iter(target.module(package).__path__))
    for place in sorted(Path(folder).glob("*/*_trainer.py")):
        module = f"{package}.{place.parent.name}.{place.stem}"
        if "GRPOTrainer" not in place.read_text(encoding="utf-8") or target.fails(module):
            continue
        for name, value in vars(target.module(module)).items():
            if inspect.isclass(value) and value.__module__ == module and issubclass(value, target.find(GRPO)):
                yield f"{module}.{name}"
