"""Select the metrics that AReaL's tracker records during a call."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rl_sentinel.adapters.kit.replacement import replaced_globals

#: The tracker's functions that log metrics by name, and the names of their options.
LOGGING = ("stat", "scalar")
OPTIONS = frozenset({"denominator", "reduce_type", "reduce_group"})


def tracker_module() -> Any:  # noqa: ANN401 - a module of the target
    """The module of AReaL's tracker; until August 2025, it was in the package before AReaL."""
    try:
        return importlib.import_module("areal.utils.stats_tracker")
    except ModuleNotFoundError:
        return importlib.import_module("realhf.base.stats_tracker")


def exported(tracker: Any) -> dict[str, Any]:  # noqa: ANN401 - a module of the target
    """The metrics that the tracker has recorded, after which it is empty."""
    export: Callable[[], dict[str, Any]] = tracker.export_all if hasattr(tracker, "export_all") else tracker.export
    return export()


@contextmanager
def logging_only(names: tuple[str, ...]) -> Iterator[Any]:
    """Let AReaL's tracker record only the metrics ``names`` and their denominators; yields the tracker's module.

    Recording takes most of the time of an update. If there are names, the tracker is emptied first, because metrics of
    a call that failed would make later calls fail.
    """
    tracker = tracker_module()
    if names:
        exported(tracker)
    functions = (*LOGGING, *(() if names else ("denominator",)))
    filters = {name: _only_names(getattr(tracker, name), names) for name in functions if hasattr(tracker, name)}
    with replaced_globals(vars(tracker), **filters):
        yield tracker


def _only_names(function: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., None]:
    """A function of the tracker that ignores metrics with other names."""

    def record(*options: Any, **numbers: Any) -> None:  # noqa: ANN401 - as the tracker's
        selected = {name: value for name, value in numbers.items() if name in OPTIONS or name in names}
        if selected.keys() - OPTIONS:
            function(*options, **selected)

    return record
