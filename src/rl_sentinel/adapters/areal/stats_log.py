"""AReaL's metrics log: the step number of each entry, also after a restart."""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.forms import Number, PerRow
from rl_sentinel.adapters.kit.replacement import nothing, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use

OWNER = "areal.utils.stats_logger.StatsLogger"
PATH = f"{OWNER}.commit"

_CALLER = (
    "areal/trainer/rl_trainer.py, _export_and_commit_stats: once after each step, with its number, which starts at 0; "
    "areal/utils/recover.py: the state of the log is saved and restored with the run"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of one commit per step, in releases that restore the log."""
    if target.has(f"{OWNER}.load_state_dict"):
        yield from try_bind(target, PATH, "batch", lambda: [_boundary()])


class Services:
    """A fake of the logging services; it records the step of each commit."""

    def __init__(self) -> None:
        """Start with no commit."""
        self.steps: list[float] = []

    def log(self, numbers: Mapping[str, float], *, step: int) -> None:
        """Record the step; infinity for an entry without numbers."""
        self.steps.append(float(step) if numbers else float("inf"))


def commit_steps(owner: Any, rows: int) -> dict[str, Any]:  # noqa: ANN401 - the target's class
    """Commit one entry per step, in one run and in a run that restarts halfway.

    Returns ``steps`` and ``restarted``: the recorded steps of the two runs; and ``elsewhere``: the number of wrong
    steps of the first run.
    """
    plain, restarted = Services(), Services()
    _commit(owner, plain, range(rows))
    half = rows // 2
    state = _commit(owner, restarted, range(half))
    _commit(owner, restarted, range(half, rows), state if half else None)
    elsewhere = sum(step != number for number, step in enumerate(plain.steps)) + abs(rows - len(plain.steps))
    return {"steps": plain.steps, "restarted": restarted.steps, "elsewhere": float(elsewhere)}


def _commit(owner: Any, services: Services, steps: range, state: Any = None) -> Any:  # noqa: ANN401 - the target's
    """Commit these steps to a new log, which continues from ``state`` if it is given; return the new state."""
    methods = {"init": nothing, "print_stats": nothing}
    config = SimpleNamespace(stats_logger=SimpleNamespace())
    spec = SimpleNamespace(total_train_epochs=1, steps_per_epoch=len(steps), total_train_steps=len(steps))
    log = type("Log", (owner,), methods)(config, spec)
    log.summary_writer = None
    if state is not None:
        log.load_state_dict(state)
    silent = SimpleNamespace(log=nothing)
    with replaced_globals(owner.commit.__globals__, wandb=services, swanlab=silent, trackio=silent):
        for step in steps:
            log.commit(0, step, step, {"loss": float(step)})
    return log.state_dict()


def _boundary() -> Boundary:
    log, form = Use("log"), PerRow("list")
    return one_call(
        path=PATH,
        stage="batch",
        call=commit_steps,
        name="log",
        arguments={"owner": Constant(Function(OWNER)), "rows": Derived(lambda inputs: inputs.batch.rows)},
        produced_by={"rows": _CALLER},
        remembered=True,
        reads=frozenset({"group"}),
        outputs={
            "step of the log": Output("B", "", "uninterrupted.step", at=log["steps"], form=form),
            "step after a restart": Output("B", "", "resumed.step", at=log["restarted"], form=form),
            "numbers at another step": Output("", "count", "logged_elsewhere", at=log["elsewhere"], form=Number()),
        },
        reach="every run",
    )
