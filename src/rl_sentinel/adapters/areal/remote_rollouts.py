"""AReaL's controller of remote rollouts: the options of each task reach a worker, and the results come back."""

import asyncio
import threading
from collections.abc import Collection, Iterator
from inspect import signature
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.call_by_name import takes_more
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.scripted_sampling import WRONG
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

#: Classes of the controller, newest first.
CONTROLLERS = (
    "areal.infra.controller.rollout_controller.RolloutController",
    "areal.controller.rollout_controller.RolloutController",
)

#: Seconds after which the controller gives up a task; the fakes answer at once.
_TIMEOUT = 60.0

_DOCS = claims(
    "rollout_controller.py, submit: data, workflow and its arguments, filter, group size and evaluation of a task go "
    "to the engine of a worker; wait: trajectories of the tasks",
    conserves=True,
)
_PRODUCER = (
    "trainer/rl_trainer.py, train and _evaluate_fn: items of the data loader with the group size; a workflow returns "
    "one trajectory per task"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the controller, in releases that submit a task with its options in one call."""
    path = next((path for path in CONTROLLERS if target.has(f"{path}._create_submit_callback")), "")
    if path and target.has(f"{path}.submit") and not target.fails(path):
        yield from bindable(target, _boundary(path))


def options_of(number: int) -> dict[str, Any]:
    """The options of one task, which differ from the options of neighboring tasks."""
    return {
        "workflow_kwargs": {"number": number},
        "should_accept_fn": "math.isfinite" if number % 2 else None,
        "is_eval": number % 2 == 0,
        "group_size": 2 + number,
    }


class Workers:
    """A fake scheduler; its engines return the row of a task if they get the options of the same task.

    ``options`` names the options of a task that the release has.
    """

    def __init__(self, rows: list[dict[str, list[Any]]], options: Collection[str]) -> None:
        """Store the rows, and start without pending results."""
        self.rows, self.options = rows, options
        self.controller: Any = None
        self.answers: dict[tuple[str, int], dict[str, list[Any]]] = {}

    async def async_call_engine(self, worker: str, method: str, *, task_id: int = -1, **passed: Any) -> Any:  # noqa: ANN401
        """Finish a submitted task and notify the controller; with another ``method``, return its trajectory.

        Controllers of 2025 submit without an id, and ask for the trajectory with the returned one.
        If the task came with options of another task, all tokens of its trajectory are :data:`WRONG`.
        """
        if method != "submit":
            return self.answers[worker, task_id]
        number = passed["data"]["number"]
        row, wanted = self.rows[number], {"workflow": "workflow", **self.options_of(number)}
        wrong = any(passed.get(name) != value for name, value in wanted.items())
        place = number if task_id < 0 else task_id
        self.answers[worker, place] = {**row, "token": [WRONG] * len(row["token"])} if wrong else row
        if task_id >= 0:
            self.controller._pending_futures[task_id].set_result(None)  # noqa: SLF001 - as its callback server does
        return place

    def options_of(self, number: int) -> dict[str, Any]:
        """The options of one task that the release has."""
        return {name: value for name, value in options_of(number).items() if name in self.options}


class Dispatcher:
    """A fake task queue, which runs tasks in order when results are requested."""

    def __init__(self) -> None:
        """Start with no tasks."""
        self.controller: Any = None
        self.tasks: list[Any] = []

    def submit_task_input(self, task: Any) -> None:  # noqa: ANN401 - the target's class
        """Keep the task."""
        self.tasks.append(task)

    def wait_results(self, *_passed: object) -> list[Any]:
        """The results of all tasks."""

        async def results() -> list[Any]:
            run = self.controller._create_submit_callback  # noqa: SLF001 - the audited method
            return list(await asyncio.gather(*(run(task)() for task in self.tasks)))

        return asyncio.run(results())


def submit_all(owner: Any, rows: list[dict[str, list[Any]]]) -> dict[str, list[Any]]:  # noqa: ANN401 - a class
    """Submit one task per row, and return the trajectories; a lost trajectory has tokens of :data:`WRONG`."""
    known = signature(owner.submit).parameters
    scheduler, dispatcher = Workers(rows, options_of(0) if takes_more(known) else known), Dispatcher()
    counts = SimpleNamespace(on_rollout_accepted=lambda: None, on_rollout_rejected=lambda: None)
    controller = bare_instance(
        owner,
        config=SimpleNamespace(request_timeout=_TIMEOUT, enable_rollout_tracing=False),
        scheduler=scheduler,
        workers=[SimpleNamespace(id="first"), SimpleNamespace(id="second")],
        _worker_role="rollout",
        _current_worker_idx=0,
        _staleness_manager=counts,
        _dispatcher=dispatcher,
        _pending_futures={},
        _futures_lock=threading.Lock(),
        _task_id_generator=SimpleNamespace(next=iter(range(7, 7 + len(rows))).__next__),
        _callback_host="host",
        _callback_port=1,
        _proxy_started=False,
    )
    scheduler.controller = dispatcher.controller = controller
    for number in range(len(rows)):
        controller.submit({"number": number}, "workflow", **scheduler.options_of(number))
    found = controller.wait(len(rows))
    lost = [{**row, "token": [WRONG] * len(row["token"])} for row in rows]
    done = [one or other for one, other in zip(found, lost, strict=True)]
    return {name: [row[name] for row in done] for name in ("token", "logprob")}


def _boundary(path: str) -> Boundary:
    row = Table({"token": RowTokens("token", "int"), "logprob": RowTokens("rollout_logprob")})
    done, form = Use("done"), Ragged()
    return one_call(
        path=f"{path}.submit",
        stage="batch",
        call=submit_all,
        name="done",
        arguments={"owner": Constant(Function(path)), "rows": EachRow(row)},
        produced_by={"rows": _PRODUCER},
        outputs={
            "rollout_logprob": Output("B T", "nats", "rollout_logprob", at=done["logprob"], form=form),
            "token": Output("B T", "", "token", at=done["token"], form=form),
        },
        claims=_DOCS,
        reach="a run with one controller, which is the default of the command line",
        requires=(no_empty_response,),
    )
