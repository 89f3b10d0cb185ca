"""Select the metrics that AReaL's tracker records during a call."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rl_sentinel.adapters.kit.replacement import replaced_globals

#: The tracker's functions that log metrics by name, and the names of their options.
LOGGING = ("stat", "scalar")
OPTIONS = frozenset({"denominator", "reduce_type", "reduce_group"})


@contextmanager
def logging_only(names: tuple[str, ...]) -> Iterator[Any]:
    """Let AReaL's tracker record only the metrics ``names`` and their denominators; yields the tracker's module.

    Recording takes most of the time of an update. If there are names, the tracker is emptied first, because metrics of
    a call that failed would make later calls fail.
    """
    tracker: Any = importlib.import_module("areal.utils.stats_tracker")
    if names:
        tracker.export_all()
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
