"""How verl's engines of a release split a batch into micro-batches."""

import inspect
from collections.abc import Mapping

from rl_sentinel.adapters.target import Target
from rl_sentinel.core.case import Settings

SPLIT = "verl.workers.engine.utils.prepare_micro_batches"


def splits_equally(target: Target) -> bool:
    """Whether an engine can make equal micro-batches.

    From September 2025 to January 2026 it calls ``split`` on nested tensors, which torch refuses: only dynamic batches
    run.
    """
    return not target.has(SPLIT) or bool(target.fails(SPLIT)) or ".split(" not in inspect.getsource(target.find(SPLIT))


def splits_of_release(target: Target, settings: Mapping[str, Settings]) -> Mapping[str, Settings]:
    """The settings, with dynamic batches where the engine cannot make equal micro-batches."""
    if splits_equally(target):
        return settings
    return {name: {**own, "use_dynamic_bsz": True} for name, own in settings.items()}
