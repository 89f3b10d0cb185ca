"""AReaL's staleness manager: how many rollouts it admits, in one session and after a restart."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

#: Paths of the class, newest first.
MANAGERS = ("areal.infra.staleness_manager.StalenessManager", "areal.core.staleness_manager.StalenessManager")

#: Setting -> number of finished updates, largest age of a sample in updates, and rejected rollouts per update.
SETTINGS: Mapping[str, Settings] = {
    "on policy": {"finished": 2, "max_staleness": 0, "filtered": 0},
    "two behind": {"finished": 3, "max_staleness": 2, "filtered": 0},
    "some rejected": {"finished": 2, "max_staleness": 1, "filtered": 1},
}

_DOCS = (
    "staleness_manager.py, get_capacity: (max_staleness + current_version + 1) * consumer_batch_size, less "
    "the rollouts that are accepted or running"
)
_PRODUCER = (
    "workflow_executor.py, initialize: max_head_offpolicyness and max_concurrent_rollouts, and the "
    "batch size of the data loader"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the manager, with the events that the dispatcher and the executor of rollouts report to it."""
    path = next((path for path in MANAGERS if target.has(path)), "")
    if path:
        yield from try_bind(target, path, "batch", lambda: [_admitted(path)])


@dataclass
class Weights:
    """A fake inference engine: the staleness manager only reads the version of its weights."""

    version: int = 0

    def get_version(self) -> int:
        """The number of finished updates."""
        return self.version


def count_admitted(
    make: Callable[..., Any], rows: int, finished: int, max_staleness: int, filtered: int
) -> dict[str, int]:
    """Count all rollouts that are admitted up to version ``finished`` of the weights.

    Returns ``admitted``: the number without a restart; and ``resumed``: the number with one. Rejected rollouts do not
    count. All admitted rollouts run at once and finish before further rollouts start. A restart loses rollouts that are
    not trained yet, and loads the weights of the last update.
    """
    session = _session(make, rows, max_staleness)
    admitted = 0
    for version in range(finished + 1):
        session.weights.version = version
        admitted += session.fill(filtered)
    restarted = _session(make, rows, max_staleness)
    restarted.weights.version = finished
    if recover := getattr(restarted.manager, "on_version_recovered", None):
        recover(finished)
    return {"admitted": admitted, "resumed": finished * rows + restarted.fill(filtered)}


def _session(make: Callable[..., Any], rows: int, max_staleness: int) -> "Session":
    """A run with a new manager."""
    weights = Weights()
    many = rows * (max_staleness + 2)  # more than an update needs, so that the limit on staleness binds
    sizes = {"max_concurrent_rollouts": many, "consumer_batch_size": rows, "max_staleness": max_staleness}
    provider = {"version_provider": weights} if "version_provider" in inspect.signature(make).parameters else {}
    return Session(weights, make(**provider, **sizes))


class Session:
    """One run of the trainer: a manager, and the version of the weights that it reads."""

    def __init__(self, weights: Weights, manager: Any) -> None:  # noqa: ANN401 - the target's class
        """Store the weights and the manager; check whether the manager needs the version on each call."""
        self.weights, self.manager = weights, manager
        # Managers of older releases take the version as an argument of each call.
        self.asks = bool(inspect.signature(self.manager.get_capacity).parameters)

    def capacity(self) -> int:
        """The number of rollouts that may start now."""
        return int(self.manager.get_capacity(self.weights.version) if self.asks else self.manager.get_capacity())

    def fill(self, filtered: int) -> int:
        """Run rollouts until no more may start; the first ``filtered`` rollouts are rejected, the rest are counted."""
        admitted = 0
        while True:
            running = 0
            while self.capacity() > 0:
                if hasattr(self.manager, "on_rollout_enqueued"):  # earlier managers count from the submission on
                    self.manager.on_rollout_enqueued()
                self.manager.on_rollout_submitted()
                running += 1
            if not running:
                return admitted
            for _ in range(running):
                if filtered > 0:
                    self.manager.on_rollout_rejected()
                    filtered -= 1
                else:
                    self.manager.on_rollout_accepted()
                    admitted += 1


def _admitted(path: str) -> Boundary:
    session = Use("session")
    return one_call(
        path=path,
        stage="batch",
        call=count_admitted,
        name="session",
        arguments={
            "make": Constant(Function(path)),
            "rows": Derived(lambda inputs: inputs.batch.rows),
            **knobs("finished", "max_staleness", "filtered"),
        },
        produced_by={"max_staleness": _PRODUCER},
        reads=frozenset({"group"}),
        outputs={
            "admitted": Output("", "samples", "admitted", at=session["admitted"]),
            "admitted after a restart": Output("", "samples", "admitted", at=session["resumed"]),
        },
        settings=SETTINGS,
        claims=claims(_DOCS),
        reach="every asynchronous run; after a restart, a run with a recovered checkpoint",
    )
