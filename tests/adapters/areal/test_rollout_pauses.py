"""AReaL's controller around a weight update, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, the_bound
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.areal import FRAMEWORK, rollout_pauses
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CONTROLLER = """
    import asyncio

    def run_async_task(function, *arguments):
        raise RuntimeError("there is no loop of this kind")

    class RolloutController:
        async def call(self, workers, method, **options):
            calls = [self.scheduler.async_call_engine(one.id, method, **options) for one in workers]
            await asyncio.gather(*calls)

        async def everywhere(self, method, proxies, options):
            await self.call(self.workers, method, **options)
            if proxies and self._proxy_started:
                await self.call(self.proxy_workers, method, **options)

        def pause(self):
            run_async_task(self.everywhere, "pause", PAUSED, {})

        def set_version(self, version):
            run_async_task(self.everywhere, "set_version", INFORMED, {"version": version})

        def resume(self):
            run_async_task(self.everywhere, "resume", RESUMED, {})
"""

WORDS = ("PAUSED", "INFORMED", "RESUMED")


def _bound(loads: Loads, broken: str = "") -> tuple[Target, Boundary]:
    controller = CONTROLLER
    for word in WORDS:
        controller = controller.replace(word, str(word != broken))
    files = {"areal/__init__.py": "", "areal/infra/controller/rollout_controller.py": controller}
    target = loads(FRAMEWORK, files)
    found = the_bound(rollout_pauses.boundaries(target))
    return target, found


def test_all_workers_are_called(loads: Loads) -> None:
    target, found = _bound(loads)
    assert answering({("update", "weight updates"): found}, target) == []
    check_verdict(PLC004, found, "weight updates", target, found=False)


@pytest.mark.parametrize("word", WORDS)
def test_workers_behind_a_proxy_are_left_out(loads: Loads, word: str) -> None:
    target, found = _bound(loads, word)
    check_verdict(PLC004, found, "weight updates", target, found=True)


def test_round_trip(loads: Loads) -> None:
    target, found = _bound(loads)
    check_round_trips(target, [found])
