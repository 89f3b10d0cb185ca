"""AReaL's rollout workers under a controller: how many rollouts a worker admits."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.areal.staleness import MANAGERS, Session, Weights
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Derived, functions, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

CONTROLLER = "areal.infra.controller.rollout_controller.RolloutController"
START = f"{CONTROLLER}.initialize"
EXECUTOR = "areal.infra.workflow_executor.WorkflowExecutor"
PATH = f"{EXECUTOR}.initialize"

#: Rollout workers, which are the ranks of one process group.
_WORKERS = 2

_DOCS = (
    "rollout_controller.py, initialize: the controller's staleness manager is the global capacity control, "
    "(max_head_offpolicyness + version + 1) * consumer_batch_size; any worker may get all of its rollouts"
)
_CALLER = (
    "areal/trainer/rl_trainer.py: RolloutController.initialize(role, server_args); each worker's engine.initialize "
    "gets the arguments of the controller, and passes train_data_parallel_size on to its executor"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the limit of a worker that a controller starts."""
    if not all(target.has(path) for path in (START, PATH, MANAGERS[0])) or target.fails(MANAGERS[0]):
        return
    if why := target.fails(START) or target.fails(PATH):
        yield Unbound(PATH, "batch", why)
    else:
        yield from bindable(target, _admitted())


class Scheduler:
    """A fake scheduler, which records the arguments with which the workers' engines are initialized."""

    def __init__(self) -> None:
        """Start without a call."""
        self.options: list[dict[str, Any]] = []

    def create_workers(self, **_about: object) -> list[str]:
        """The names of the workers."""
        return [str(rank) for rank in range(_WORKERS)]

    def get_workers(self, **_about: object) -> list[SimpleNamespace]:
        """The workers."""
        return [SimpleNamespace(id=name) for name in self.create_workers()]

    async def create_engine(self, **_about: object) -> None:
        """Create nothing."""

    async def async_call_engine(self, *_passed: object, method: str, **options: Any) -> Any:  # noqa: ANN401 - a reply
        """Record the arguments of an initialization."""
        if method == "initialize":
            self.options.append(options)
        return SimpleNamespace(host="host", port=1)

    async def call_all(self, method: str, *_passed: object, **options: Any) -> list[object]:  # noqa: ANN401 - as above
        """Call a method of all engines; until January 2026, this initializes them."""
        await self.async_call_engine(method=method, **options)
        return []


def admitted_by_worker(  # noqa: PLR0913 - code of the target, and the arguments of the boundary
    start: Callable[..., Any],
    controller: type,
    initialize: Callable[..., Any],
    executor: type,
    rows: int,
    finished: int,
    max_staleness: int,
) -> float:
    """Start a worker that gets all rollouts; return how many it admits up to version ``finished`` of the weights."""
    weights = Weights()
    many = rows * (max_staleness + 2)  # so that the limit on staleness binds
    config = SimpleNamespace(
        consumer_batch_size=rows,
        max_concurrent_rollouts=many,
        max_head_offpolicyness=max_staleness,
        queue_size=None,
        enable_rollout_tracing=False,
        scheduling_strategy=SimpleNamespace(type="separation"),
    )
    scheduler = Scheduler()
    parallel = SimpleNamespace(tp_size=1, pp_size=1, dp_size=_WORKERS)
    config.scheduling_spec = [start.__globals__.get("SchedulingSpec", dict)()]
    made = bare_instance(
        controller,
        scheduler=scheduler,
        config=config,
        inf_engine=Weights,
        rollout_alloc=SimpleNamespace(parallel=parallel),
        _collective_rpc_async=scheduler.call_all,
        _start_callback_server=lambda: None,
    )
    with replaced_globals(start.__globals__, run_async_task=_run, BatchTaskDispatcher=_Dispatcher):
        start(made, role="rollout", server_args={}, **_allocation(start, parallel))
    given = scheduler.options[0].get("train_data_parallel_size")
    worker = bare_instance(
        executor,
        config=config,
        inference_engine=weights,
        consumer_batch_size=rows,
        max_concurrent_rollouts=many,
        _staleness_manager=None,
        _dispatcher=None,
        _create_workflow_task=None,
    )
    group = SimpleNamespace(is_initialized=lambda: True, get_world_size=lambda: _WORKERS, get_rank=lambda: 0)
    with replaced_globals(initialize.__globals__, dist=group, BatchTaskDispatcher=_Dispatcher):
        initialize(worker, logger=SimpleNamespace(), train_data_parallel_size=given)
    session = Session(weights, worker._staleness_manager)  # noqa: SLF001 - what the executor asks
    admitted = 0
    for version in range(finished + 1):
        weights.version = version
        admitted += session.fill(0)
    return float(admitted)


def _allocation(start: Callable[..., Any], parallel: SimpleNamespace) -> dict[str, Any]:
    """The allocation of all engines, which the trainer passed before the controller parsed its own backend (1.0.3)."""
    if "alloc_mode" not in inspect.signature(start).parameters:
        return {}
    return {"alloc_mode": SimpleNamespace(gen_instance_size=1, gen=parallel)}


class _Dispatcher:
    """A fake dispatcher of tasks, which starts no thread."""

    def __class_getitem__(cls, _kinds: object) -> type:
        return cls

    def __init__(self, **_options: object) -> None:
        """Ignore the options."""

    def initialize(self, **_options: object) -> None:
        """Do nothing."""


def _run(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as the coroutine
    """A fake of AReaL's helper, which runs a coroutine in a loop of uvloop."""
    return asyncio.run(function(*arguments, **options))


def _admitted() -> Boundary:
    return one_call(
        path=f"{START} -> {PATH}",
        stage="batch",
        call=admitted_by_worker,
        name="admitted",
        arguments={
            **functions(start=START, controller=CONTROLLER, initialize=PATH, executor=EXECUTOR),
            "rows": Derived(lambda inputs: inputs.batch.rows),
            **knobs("finished", "max_staleness"),
        },
        produced_by={"rows": _CALLER},
        remembered=True,
        reads=frozenset({"group"}),
        outputs={"admitted by a worker": Output("", "samples", "admitted", at=Use("admitted"))},
        settings={"one behind": {"finished": 2, "max_staleness": 1}},
        claims=claims(_DOCS),
        reach="single-controller mode, with workers in one process group",
    )
