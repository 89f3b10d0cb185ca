"""Metrics that verl's fully asynchronous trainer logs between weight updates, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_bound
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, window_metrics
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.metric_logged_elsewhere import LAW as MET006

AGGREGATOR = """
    class MetricsAggregator:
        def __init__(self, total_gpus):
            self.reset()

        def reset(self):
            self.steps = []

        def add_step_metrics(self, metrics, sample_count, timestamp):
            self.steps.append(dict(metrics))

        def get_aggregated_metrics(self):
            names = {name for step in self.steps for name in step}
            return {name: sum(step[name] for step in self.steps) / len(self.steps) for name in names}
"""

TRAINER = """
    import asyncio

    import ray
    from verl.utils.debug import marked_timer

    class TrainingStopException(Exception):
        pass

    class FullyAsyncTrainer:
        async def fit(self):
            while True:
                try:
                    await self.fit_step()
                except TrainingStopException:
                    break
            self.progress_bar.close()

        async def fit_step(self):
            self.metrics, self.timing_raw = {"training/epoch": 0}, {}
            with marked_timer("step", self.timing_raw):
                batch = await self._fit_generate(None)
                batch = self._fit_update_actor(batch)
                self.local_trigger_step += 1
                if self.local_trigger_step > self.trigger_parameter_sync_step:
                    self.local_trigger_step = 1
                    self.current_param_version += 1
                ray.get([self.rollouter.produced.remote(), self.rollouter.completed.remote()])
                await asyncio.wrap_future(self.rollouter.reset_staleness.remote().future())
            self._fit_collect_metrics(batch)
            ORDER

        def _fit_postprocess_step(self):
            self.metrics_aggregator.add_step_metrics(metrics=self.metrics, sample_count=1, timestamp=0.0)

        def log(self):
            if self.local_trigger_step == 1:
                numbers = self.metrics_aggregator.get_aggregated_metrics()
                self.logger.log(data=numbers, step=self.current_param_version)
                self.metrics_aggregator.reset()
"""
DEBUG = "def marked_timer(name, timing_raw):\n    raise RuntimeError(name)\n"
IN_TIME = "self._fit_postprocess_step(); self.log()"
LATE = "self.log(); self._fit_postprocess_step()"


def _bound(loads: Loads, order: str) -> tuple[Target, Boundary]:
    folder = "verl/experimental/fully_async_policy"
    tree = {
        f"{folder}/fully_async_trainer.py": TRAINER.replace("ORDER", order),
        f"{folder}/detach_utils.py": AGGREGATOR,
        "verl/utils/debug.py": DEBUG,
        "ray/__init__.py": "def get(results):\n    raise RuntimeError('no cluster')\n",
    }
    target = loads(FRAMEWORK, tree)
    boundary = the_bound(window_metrics.boundaries(target))
    return target, boundary


def test_reads_back(loads: Loads) -> None:
    """Both settings answer, and their calls are read back."""
    target, boundary = _bound(loads, IN_TIME)
    check_calls(target, [boundary])


@pytest.mark.parametrize("setting", list(window_metrics.SETTINGS))
@pytest.mark.parametrize(("order", "found"), [(IN_TIME, False), (LATE, True)])
def test_update_of_metrics(loads: Loads, setting: str, order: str, *, found: bool) -> None:
    """Metrics of a step that arrive before or after those of its update are logged."""
    target, boundary = _bound(loads, order)
    check_verdict(MET006, boundary, setting, target, found=found)
