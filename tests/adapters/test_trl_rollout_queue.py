"""TRL's queue of asynchronous rollouts, on a specimen of its data set in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_async_specimen import files
from adapters.trl_specimen import filled, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, rollout_queue
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.knob_with_side_effect import LAW as CFG002
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

NAME = "a slow worker"

MODULE = """
    import queue
    import threading
    import time

    class RolloutQueueDataset:
        def __init__(self, rollout_queue, model_version_fn, poll_interval_s=5.0):
            self.queue, self.version, self.interval = rollout_queue, model_version_fn, poll_interval_s
            threading.Thread(target=None, daemon=True).start()

        def __iter__(self):
            start = time.time()
            while True:
                try:
                    sample = self.queue.get(timeout=self.interval)
                except queue.Empty:
                    {empty}
                    continue
                waited = time.time() - start
                start = time.time()
                if self.version() > sample.model_version:
                    continue
                {delivers}
                yield {"input_ids": sample.input_ids, "metrics": {**sample.metrics, "queue_wait_time_s": waited}}
"""

SOUND = {"empty": "pass", "delivers": "pass"}


def _bound(loads: Loads, **choices: str) -> tuple[Target, Boundary]:
    source = filled(MODULE, SOUND | choices)
    tree = {**files(), "trl/experimental/async_grpo/async_grpo_trainer.py": source}
    target = loads(FRAMEWORK, tree, overlay())
    return target, the_only(rollout_queue.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """The wait moves with the lengths."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "broken"),
    [
        (CFG002, {"empty": "start = time.time()"}),  # the wait is that of the last poll
        (DAT002, {"delivers": 'yield {"metrics": sample.metrics}'}),  # a sample is delivered twice
    ],
)
def test_faults(loads: Loads, law: Law, broken: dict[str, str], *, sound: bool) -> None:
    """Polls in between do not shorten the logged wait, and each sample is delivered once."""
    target, boundary = _bound(loads, **({} if sound else broken))
    check_verdict(law, boundary, NAME, target, found=not sound)
