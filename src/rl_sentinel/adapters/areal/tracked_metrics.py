"""Select the metrics that AReaL's tracker records during a call."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rl_sentinel.adapters.kit.replacement import replaced_globals

#: The tracker's functions that log metrics by name, and the names of their options.
LOGGING = ("stat", "scalar")
OPTIONS = frozenset({"denominator", "reduce_type", "reduce_group"})


def stats_tracker() -> Any:  # noqa: ANN401 - a module of the target
    """AReaL's module of logged statistics, which belonged to the package ``realhf`` until September 2025."""
    present = importlib.util.find_spec("areal.utils.stats_tracker") is not None
    return importlib.import_module("areal.utils.stats_tracker" if present else "realhf.base.stats_tracker")


def exported_statistics() -> dict[str, Any]:
    """The statistics since the last export, which empties the tracker."""
    tracker = stats_tracker()
    export: Callable[[], dict[str, Any]] = getattr(tracker, "export_all", None) or tracker.export
    return export()


@contextmanager
def logging_only(names: tuple[str, ...]) -> Iterator[Any]:
    """Let AReaL's tracker record only the metrics ``names`` and their denominators; yields the tracker's module.

    Recording takes most of the time of an update. If there are names, the tracker is emptied first, because metrics of
    a call that failed would make later calls fail.
    """
    tracker = stats_tracker()
    if names:
        exported_statistics()
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
