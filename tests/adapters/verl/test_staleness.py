"""How far verl's asynchronous rollouter runs ahead, on a specimen of its loop in words of our own."""

import asyncio

import pytest

from adapters.checks import Loads, answering, check_verdict, rewritten, the_bound
from adapters.kit.round_trip import check_round_trip
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, staleness
from rl_sentinel.adapters.verl.staleness import settle
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.version_miscounted import LAW as STA001

ROLLOUTER = """
    import asyncio
    import ray

    class FullyAsyncRollouter:
        def __init__(self):
            raise RuntimeError("it loads a data set")

        def _init_async_objects(self):
            self.lock, self.moved = asyncio.Lock(), asyncio.Condition()

        async def set_message_queue_client(self, client):
            self.message_queue_client = client

        async def set_max_required_samples(self):
            share = self.required_samples * self.config.async_training.trigger_parameter_sync_step
            self.limit = int(share * (self.staleness_threshold + AHEAD))

        async def _generate(self, sample):
            batch = await GENERATED
            async with self.moved:
                await self.message_queue_client.put_sample(sample=ray.cloudpickle.dumps(batch))
                self.moved.notify_all()

        async def _processor_worker(self):
            while True:
                async with self.moved:
                    await self.moved.wait_for(lambda: not self.paused and self.staleness_samples < self.limit)
                sample = await self.pending_queue.get()
                self.staleness_samples += 1
                task = asyncio.create_task(self._generate(sample))
                self.active_tasks.add(task)
                task.add_done_callback(self.active_tasks.discard)
"""

NEWER = """
        async def reset_staleness(self):
            async with self.moved:
                self.staleness_samples = LEFT + QUEUED
                self.moved.notify_all()
"""

OLDER = """
        async def pause(self):
            self.paused = True
            await self.async_rollout_manager.cancel()
            await asyncio.gather(*self.active_tasks)

        async def update_param_version(self, version):
            self.staleness_samples = LEFT + QUEUED
            await self.message_queue_client.put_validate(None)

        async def resume(self):
            async with self.moved:
                self.paused = False
                self.moved.notify_all()
"""

SOUND = {"AHEAD": "1", "LEFT": "len(self.active_tasks)", "QUEUED": "await self.message_queue_client.get_queue_size()"}

GENERATED = {
    NEWER: "self.async_rollout_manager.generate_sequences_single(sample.full_batch)",
    OLDER: "self.async_rollout_manager.generate_single_sample_async(sample.full_batch, None)",
}


def _bound(loads: Loads, interface: str, **broken: str) -> tuple[Target, Boundary]:
    source = ROLLOUTER + interface
    source = rewritten(source, {"GENERATED": GENERATED[interface], **SOUND, **broken})
    tree = files() | {"verl/experimental/fully_async_policy/fully_async_rollouter.py": source}
    target = loads(FRAMEWORK, tree)
    boundary = the_bound(staleness.boundaries(target))
    return target, boundary


@pytest.mark.parametrize("interface", [NEWER, OLDER])
def test_sound(loads: Loads, interface: str) -> None:
    """Before an update, after it, and with a sample that is not finished at it."""
    target, boundary = _bound(loads, interface)
    assert answering({("worker", setting): boundary for setting in boundary.settings}, target) == []
    for setting in boundary.settings:
        check_verdict(STA001, boundary, setting, target, found=False)
    check_round_trip(target, boundary)


@pytest.mark.parametrize(
    ("broken", "setting"),
    [
        ({"AHEAD": "0"}, "one behind"),
        ({"AHEAD": "2"}, "synchronous"),
        ({"LEFT": "0"}, "some unfinished"),
        ({"QUEUED": "0"}, "one behind"),
    ],
)
def test_broken(loads: Loads, broken: dict[str, str], setting: str) -> None:
    """A limit that is one update off; samples in work, or in the queue, that are not counted."""
    target, boundary = _bound(loads, NEWER, **broken)
    check_verdict(STA001, boundary, setting, target, found=True)


def test_slow_changes_are_waited_for() -> None:
    """A task may need several turns of the event loop for one change; it ends before the wait does."""
    changes = list[int]()

    async def work() -> None:
        for change in range(5):
            for _ in range(10):
                await asyncio.sleep(0)
            changes.append(change)

    async def run() -> None:
        task = asyncio.create_task(work())
        await settle(lambda: len(changes), 5)
        assert task.done()

    asyncio.run(run())
    assert changes == [0, 1, 2, 3, 4]
