"""Rollout workers of AReaL's controller, on a specimen of its classes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, the_only
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.worker_capacity import boundaries
from rl_sentinel.laws.version_miscounted import LAW as STA001

MANAGER = """
    class StalenessManager:
        def __init__(self, version_provider, consumer_batch_size, max_staleness):
            self.provider, self.batch, self.oldest, self.count = version_provider, consumer_batch_size, max_staleness, 0

        def get_capacity(self):
            return (self.oldest + self.provider.get_version() + 1) * self.batch - self.count

        def on_rollout_submitted(self):
            self.count += 1

        def on_rollout_accepted(self):
            pass
"""

CONTROLLER = """
    run_async_task = None

    class RolloutController:
        def initialize(self, role, ALLOCATEDserver_args, **kwargs):
            run_async_task(self.start, role, **kwargs)

        async def start(self, role, **kwargs):
            self.scheduler.create_workers(job=role)
            for worker in self.scheduler.get_workers(role=role):
                await self.scheduler.async_call_engine(worker_id=worker.id, method="initialize", SENT**kwargs)
"""

EXECUTOR = """
    import torch.distributed as dist
    from areal.infra.staleness_manager import StalenessManager

    class WorkflowExecutor:
        def initialize(self, logger=None, train_data_parallel_size=None):
            parts = train_data_parallel_size or dist.get_world_size()
            self._staleness_manager = StalenessManager(
                version_provider=self.inference_engine,
                consumer_batch_size=max(1, self.consumer_batch_size // parts),
                max_staleness=self.config.max_head_offpolicyness,
            )
"""


@pytest.mark.parametrize("allocated", ["", "alloc_mode, "])
@pytest.mark.parametrize(("sent", "found"), [("train_data_parallel_size=1, ", False), ("", True)])
def test_limit_of_a_worker(loads: Loads, sent: str, found: bool, allocated: str) -> None:
    """A worker that divides the limit once more admits too few rollouts."""
    tree = {
        "areal/__init__.py": "",
        "areal/infra/staleness_manager.py": MANAGER,
        "areal/infra/controller/rollout_controller.py": CONTROLLER.replace("SENT", sent).replace(
            "ALLOCATED", allocated
        ),
        "areal/infra/workflow_executor.py": EXECUTOR,
    }
    target = loads(FRAMEWORK, tree)
    boundary = the_only(boundaries(target))
    assert answering({("worker", "one behind"): boundary}, target) == []
    check_verdict(STA001, boundary, "one behind", target, found=found)
    check_round_trip(target, boundary)


def test_one_call_of_all_workers(loads: Loads) -> None:
    """Until January 2026, the controller initializes all workers with one call."""
    head, _, _ = CONTROLLER.partition("for worker in")
    source = f'{head}await self._collective_rpc_async("initialize", train_data_parallel_size=1, **kwargs)\n'
    tree = {
        "areal/__init__.py": "",
        "areal/infra/staleness_manager.py": MANAGER,
        "areal/infra/controller/rollout_controller.py": source.replace("ALLOCATED", ""),
        "areal/infra/workflow_executor.py": EXECUTOR,
    }
    target = loads(FRAMEWORK, tree)
    check_verdict(STA001, the_only(boundaries(target)), "one behind", target, found=False)
