"""The version at the proxies of AReaL's controllers, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, judged_at, rewritten, the_bound
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.areal import FRAMEWORK, proxy_versions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CONTROLLER = """
    import asyncio

    from areal.utils.async_util import run_async_task

    class RolloutController:
        def __init__(self, scheduler):
            raise RuntimeError("no scheduler")

        def role(self):
            return ROLE

        def start_proxy(self):
            run_async_task(self.start)
            self._proxy_started = True

        async def start(self):
            self.scheduler.fork_workers(role=self.role(), target_role=self._worker_role)
            self.proxy_workers = self.scheduler.get_workers(role=self.role())
            for worker in self.proxy_workers:
                await self.scheduler.create_engine(worker_id=worker.id, engine=self.inf_engine.__name__)
            await self.call("initialize")

        async def call(self, method, **options):
            await asyncio.gather(
                *(
                    self.scheduler.async_call_engine(worker_id=worker.id, method=method, **options)
                    for worker in self.workers + ASKED
                )
            )

        def set_version(self, version):
            with self._version_lock:
                self._version = version
                run_async_task(self.call, "set_version", version=version)
"""

SOUND = {"ROLE": '"proxy-" + self._worker_role', "ASKED": "self.proxy_workers"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(CONTROLLER, SOUND | broken)
    files = {
        "areal/infra/controller/rollout_controller.py": source,
        "areal/utils/async_util.py": "run_async_task = None",
    }
    target = loads(FRAMEWORK, files)
    found = the_bound(proxy_versions.boundaries(target))
    return target, found


def test_answers_and_reads_back(loads: Loads) -> None:
    target, found = _bound(loads)
    check_calls(target, [found])


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"ROLE": '"proxy"'},  # both controllers have workers of one name
        {"ASKED": "[]"},
        {"ASKED": "self.proxy_workers[:1]"},
    ],
)
def test_every_proxy_has_the_version(loads: Loads, broken: dict[str, str]) -> None:
    target, found = _bound(loads, **broken)
    (setting,) = found.settings
    judgement = judged_at(PLC004, found, setting, target)
    assert judgement.tried > 0
    assert (judgement.found is not None) is bool(broken)
