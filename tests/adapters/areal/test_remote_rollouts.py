"""AReaL's controller of remote rollouts, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.remote_rollouts import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

CONTROLLER = """
    import asyncio

    class RolloutController:
        def submit(self, data, workflow, **options):
            options["workflow"] = workflow
            self._dispatcher.submit_task_input((self._task_id_generator.next(), options, data))

        def wait(self, count):
            return self._dispatcher.wait_results(count)

        def _create_submit_callback(self, task):
            async def run():
                number, options, data = task
                place = self._current_worker_idx = (self._current_worker_idx + 1) % len(self.workers)
                worker = self.workers[place].id
                self._pending_futures[number] = asyncio.get_running_loop().create_future()
                call = self.scheduler.async_call_engine
                await call(worker, "submit", data=data, task_id=number, OPTIONS)
                await self._pending_futures[number]
                await asyncio.sleep(0)
                return await call(worker, "wait_for_task", task_id=number)
            return run
"""

SOUND = {"OPTIONS": "**options"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(CONTROLLER, SOUND | broken)
    target = loads(FRAMEWORK, {"areal/infra/controller/rollout_controller.py": source})
    return target, the_only(boundaries(target))


def test_answers(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize("lost", ["group_size", "is_eval", "workflow_kwargs", "should_accept_fn", ""])
def test_options_of_a_task(loads: Loads, lost: str) -> None:
    """A task whose options do not reach the worker."""
    kept = f"**{{name: value for name, value in options.items() if name != '{lost}'}}"
    target, boundary = _bound(loads, OPTIONS=kept)
    check_verdict(PLC004, boundary, "default", target, found=bool(lost))


@pytest.mark.parametrize(("passed", "found"), [("**options", False), ('workflow=options["workflow"]', True)])
def test_task_without_an_id(loads: Loads, passed: str, *, found: bool) -> None:
    """A release whose tasks have fewer options, and whose engines number them."""
    changes = {
        "workflow, **options": "workflow, workflow_kwargs=None, should_accept_fn=None",
        'options["workflow"] = workflow': "options = dict(\n"
        "    workflow=workflow, workflow_kwargs=workflow_kwargs, should_accept_fn=should_accept_fn)",
        "self._pending_futures[number] = asyncio.get_running_loop().create_future()": "",
        'await call(worker, "submit", data=data, task_id=number, OPTIONS)': f"number = await call("
        f'worker, "submit", data=data, {passed})',
        "await self._pending_futures[number]": "",
    }
    target = loads(FRAMEWORK, {"areal/controller/rollout_controller.py": rewritten(CONTROLLER, changes)})
    check_verdict(PLC004, the_only(boundaries(target)), "default", target, found=found)
