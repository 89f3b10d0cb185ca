"""Experimental trainers of a TRL release, found by the text of their modules."""

import inspect
from collections.abc import Iterator
from pathlib import Path

from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO


def overriding(target: Target, method: str) -> list[str]:
    """Paths of the subclasses of ``GRPOTrainer`` that override the method."""
    paths = experimental_classes(target, "GRPOTrainer")
    return [
        path for path in paths if issubclass(target.find(path), target.find(GRPO)) and method in vars(target.find(path))
    ]


def experimental_classes(target: Target, *texts: str) -> Iterator[str]:
    """Paths of the classes in the modules of experimental trainers that contain all these texts."""
    package = "trl.experimental"
    if not target.has(package) or target.fails(package):
        return
    folder = next(iter(target.module(package).__path__))
    for place in sorted(Path(folder).glob("*/*_trainer.py")):
        module = f"{package}.{place.parent.name}.{place.stem}"
        source = place.read_text(encoding="utf-8")
        if all(text in source for text in texts) and not target.fails(module):
            for name, value in vars(target.module(module)).items():
                if inspect.isclass(value) and value.__module__ == module:
                    yield f"{module}.{name}"
