"""Boundary of verl's fully asynchronous rollouter: how many samples it generates ahead of the updates."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

ROLLOUTER = "verl.experimental.fully_async_policy.fully_async_rollouter.FullyAsyncRollouter"
WORKER = f"{ROLLOUTER}._processor_worker"

#: Setting -> finished updates, maximum age of a sample in updates, and samples that are unfinished at an update.
SETTINGS: Mapping[str, Settings] = {
    "synchronous": {"finished": 2, "max_staleness": 0, "unfinished": 0},
    "one behind": {"finished": 2, "max_staleness": 1, "unfinished": 0},
    "some unfinished": {"finished": 3, "max_staleness": 1, "unfinished": 1},
}

_DOCS = (
    "docs/advance/fully_async.md, async_training.staleness_threshold: the rollouter generates "
    "(1 + staleness_threshold) * (trigger_parameter_sync_step * require_batches * ppo_mini_batch_size) samples between "
    "two updates, less the samples that are left"
)

#: Turns of the event loop per sample; if nothing changes for so many, all tasks wait.
_TURNS = 40


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the rollouter's worker, which submits samples until enough are generated."""
    if target.has(ROLLOUTER):
        yield from try_bind(target, WORKER, "batch", lambda: [_submitted()])


class Rows:
    """A fake batch of one prompt."""

    def __init__(self) -> None:
        """A batch without columns."""
        self.non_tensor_batch: dict[str, Any] = {}

    def __len__(self) -> int:
        """The number of rows."""
        return 1


class Queue:
    """A fake queue between rollouter and trainer."""

    def __init__(self) -> None:
        """An empty queue."""
        self.samples: list[Any] = []

    async def put_sample(self, sample: Any, **_about: object) -> bool:  # noqa: ANN401 - of the target
        """Add a sample."""
        self.samples.append(sample)
        return True

    async def put_validate(self, _data: object) -> None:
        """Ignore the data: no step validates."""

    async def get_queue_size(self) -> int:
        """The number of samples that no update has used."""
        return len(self.samples)

    def get_statistics_sync(self) -> dict[str, int]:
        """The size of the queue."""
        return {"queue_size": len(self.samples)}

    async def get_statistics(self) -> dict[str, int]:
        """The size of the queue."""
        return self.get_statistics_sync()


class Servers:
    """Fake inference servers: at most ``unfinished`` samples at a time wait until they are released."""

    def __init__(self, unfinished: int, many: int) -> None:
        """Store the number of unfinished samples and of servers (``many``)."""
        self.unfinished, self.held, self.seen = unfinished, list[asyncio.Future[bool]](), set[int]()
        self.server_handles = [None] * many

    async def generate_sequences_single(self, rows: Any) -> Any:  # noqa: ANN401 - a batch
        """The same batch, at once or when it is released."""
        return (await self.generate_single_sample_async(rows))[0]

    async def generate_single_sample_async(self, rows: Any, _partial: object = None) -> tuple[Any, bool]:  # noqa: ANN401
        """The same batch, and whether it was cancelled."""
        first = id(rows) not in self.seen
        self.seen.add(id(rows))
        if not first or len(self.held) >= self.unfinished:
            return rows, False
        self.held.append(asyncio.get_running_loop().create_future())
        return rows, await self.held[-1]

    def release(self, *, cancelled: bool = False) -> None:
        """Finish or cancel the samples that wait."""
        for future in self.held:
            if not future.done():
                future.set_result(cancelled)
        self.held.clear()

    async def clear_kv_cache(self) -> None:
        """Do nothing: there is no cache."""

    async def cancel(self) -> None:
        """Cancel the samples that wait, before an update."""
        self.release(cancelled=True)

    async def resume(self) -> None:
        """Do nothing: there is no state to resume."""

    def get_replicas(self) -> list[None]:
        """One entry for each server."""
        return self.server_handles

    def get_active_server_count(self) -> int:
        """The number of servers."""
        return len(self.server_handles)


def count_submitted(owner: Any, rows: int, finished: int, max_staleness: int, unfinished: int) -> int:  # noqa: ANN401 - a class
    """Run the rollouter over ``finished`` updates of ``rows`` samples each; return the number of submitted samples."""
    code = inspect.unwrap(owner._processor_worker).__globals__  # noqa: SLF001 - the loop that the trainer starts
    ray = SimpleNamespace(cloudpickle=SimpleNamespace(dumps=lambda sample: sample))
    with redirect_stdout(None), patch.dict(code, ray=ray):
        return asyncio.run(_session(owner, rows, finished, max_staleness, unfinished))


async def _session(owner: Any, rows: int, finished: int, staleness: int, unfinished: int) -> int:  # noqa: ANN401
    total = rows * (finished + staleness + 3)
    queue, servers = Queue(), Servers(min(unfinished, rows * staleness), total)
    rollouter = _rollouter(owner, rows, staleness, total, servers)
    rollouter._init_async_objects()  # noqa: SLF001 - as its other methods do
    await rollouter.set_message_queue_client(queue)
    await rollouter.set_max_required_samples()
    batches = [Rows() for _ in range(total)]
    for number, batch in enumerate(batches):
        about = {"sample_id": str(number), "epoch": 0, "agent_loop_output_list": [], "rollout_status": {}}
        rollouter.pending_queue.put_nowait(SimpleNamespace(full_batch=batch, **about))
    work = asyncio.create_task(rollouter._processor_worker())  # noqa: SLF001

    def state() -> tuple[int, ...]:
        return rollouter.pending_queue.qsize(), len(servers.seen), len(servers.held), len(queue.samples)

    for version in range(1, finished + 1):
        await settle(state, total)
        if rollouter.lock.locked():  # a drain that holds the lock until every sample is generated
            servers.release()
            await settle(state, total)
        del queue.samples[:rows]
        await _update(rollouter, version)
        servers.release()
    await settle(state, total)
    servers.release()
    await settle(state, total)
    if work.done():
        work.result()  # raises the exception of the worker
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return len(servers.seen)


async def settle(state: Callable[[], object], total: int) -> None:
    """Let the tasks run until the state has not changed for some turns of the event loop, or all turns are used."""
    seen, unchanged = state(), 0
    for _ in range(_TURNS * total):
        await asyncio.sleep(0)
        unchanged = unchanged + 1 if state() == seen else 0
        if unchanged == _TURNS:
            return
        seen = state()


async def _update(rollouter: Any, version: int) -> None:  # noqa: ANN401 - an instance of the target
    """Call the rollouter as the trainer does around an update of the weights."""
    if hasattr(rollouter, "reset_staleness"):
        await rollouter.reset_staleness()
        return
    await rollouter.pause()
    await rollouter.update_param_version(version)
    await rollouter.resume()


def _rollouter(owner: Any, rows: int, staleness: int, total: int, servers: Servers) -> Any:  # noqa: ANN401
    """A rollouter without its constructor, which loads data sets."""
    settings = SimpleNamespace(trigger_parameter_sync_step=1, partial_rollout=True)
    counters = ["total_generated_samples", "staleness_samples", "dropped_stale_samples", "processed_sample_count"]
    counters += ["current_param_version", "_step_generated_samples", "_completed_steps"]
    unset = ("idle_start_time", "version_start_time", "val_reward_fn", "validate_task")
    return bare_instance(
        owner,
        config=SimpleNamespace(async_training=settings, rollout=SimpleNamespace(test_freq=0)),
        required_samples=rows,
        staleness_threshold=staleness,
        total_rollout_steps=total,
        concurrent_samples_per_replica=16,
        async_rollout_manager=servers,
        llm_server_manager=servers,
        pending_queue=asyncio.Queue(),
        cancel_queue=asyncio.Queue(),
        active_tasks=set(),
        paused=False,
        running=True,
        monitor_loop_trigger=True,
        parallel_validate_and_rollout=False,
        step_start_time=0.0,
        _active_count_history=[(0.0, 0, 0)],
        _STEP_HISTORY_SIZE=10,
        _step_samples_history=[],
        **dict.fromkeys(counters, 0),
        **dict.fromkeys(unset, None) | ({"idle_start_time": 0.0} if hasattr(owner, "reset_staleness") else {}),
    )


def _submitted() -> Boundary:
    return one_call(
        path=WORKER,
        stage="batch",
        call=count_submitted,
        name="submitted",
        arguments={
            "owner": Constant(Function(ROLLOUTER)),
            "rows": Derived(lambda inputs: inputs.batch.rows),
            **knobs("finished", "max_staleness", "unfinished"),
        },
        produced_by={"max_staleness": "fully_async_rollouter.py, __init__: staleness_threshold of async_training"},
        reads=frozenset({"group"}),
        outputs={"submitted": Output("", "samples", "admitted", at=Use("submitted"))},
        settings=SETTINGS,
        claims=claims(_DOCS),
        reach="experimental.fully_async_policy, async_training.staleness_threshold",
    )
