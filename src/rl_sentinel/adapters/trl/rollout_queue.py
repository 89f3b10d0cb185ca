"""TRL's queue of asynchronous rollouts: a check that it delivers each sample once and logs the correct waiting time."""

import inspect
import logging
import queue
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import ResponseMask
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims

DATASETS = tuple(
    f"trl.experimental.{name}.{name}_trainer.RolloutQueueDataset" for name in ("async_grpo", "async_distillation")
)

#: How releases log the wait: with each sample, or summed in the data set.
PER_SAMPLE, SUMMED = "queue_wait_time_s", "wait_s"

#: Seconds for which the worker samples each token.
SLOW = 3.0

_SAYS = (
    "docs/source/async_grpo_trainer.md, Logged metrics: time that the trainer waits for rollouts; "
    "async_grpo_trainer.py, RolloutQueueDataset: the queue is polled every poll_interval_s until it has a sample"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the data set of each asynchronous trainer.

    The module of the trainer's loss reports a trainer that fails.
    """
    for path in DATASETS:
        if target.has(f"{path}.__iter__") and not target.fails(path):
            source = inspect.getsource(target.find(path))
            if PER_SAMPLE in source or SUMMED in source:
                yield from bindable(target, _waits(path))


class Queue:
    """A fake queue: samples arrive at known times, and waiting for a sample advances the queue's clock."""

    def __init__(self, samples: list[tuple[float, Any]]) -> None:
        """Store the samples, each with its arrival time in seconds."""
        self.samples, self.now = list(samples), 0.0

    def get(self, timeout: float) -> Any:  # noqa: ANN401 - a sample
        """The next sample.

        Raises:
            Empty: if no sample arrives before the timeout.
            AllDelivered: if all samples were delivered before.
        """
        if not self.samples:
            raise AllDelivered
        arrives = self.samples[0][0]
        if arrives > self.now + timeout:
            self.now += timeout
            raise queue.Empty
        self.now = max(self.now, arrives)
        return self.samples.pop(0)[1]

    def qsize(self) -> int:
        """The number of samples that have arrived."""
        return sum(arrives <= self.now for arrives, _ in self.samples)

    def time(self) -> float:
        """The current time on the queue's clock, in seconds."""
        return self.now


class AllDelivered(Exception):  # noqa: N818 - no error: the end of a data set without one
    """Raised when all samples have been delivered."""


def delivered(kind: Callable[..., Any], lengths: Tensor, interval: float) -> dict[str, Any]:
    """Iterate over the trainer's data set on a fake queue; ``interval`` is the time between polls.

    Returns ``uses``: how often each sample is delivered; and ``wait``: the logged seconds of waiting.
    """
    counts = [int(words) for words in lengths.sum(1).tolist()]
    samples = [
        (
            SLOW * sum(counts[: number + 1]),
            SimpleNamespace(
                input_ids=[5] * words,
                completion_mask=[1] * words,
                old_log_probs=[0.0] * words,
                advantage=1.0,
                model_version=0,
                group_id=number,
                prompt_id=number,
                teacher_id=0,
                teacher_topk_ids=[[5]] * words,
                teacher_topk_logprobs=[[0.0]] * words,
                enqueued_at=None,
                metrics={"number": number},
            ),
        )
        for number, words in enumerate(counts)
    ]
    arriving = Queue(samples)
    module, clock = inspect.getmodule(kind), SimpleNamespace(time=arriving.time, monotonic=arriving.time)
    plain = logging.getLogger(__name__)  # accelerate's logger needs a started process group
    fakes = {"time": clock, "threading": SimpleNamespace(Thread=_Thread), "logger": plain}
    known = {
        "rollout_queue": arriving,
        "model_version_fn": lambda: 0,
        "check_health_fn": lambda _seconds: None,
        "stale_after_s": 1e9,
        "metrics": defaultdict(list),
        "poll_interval_s": interval,
    }
    takes = inspect.signature(kind).parameters
    found = list[dict[str, Any]]()
    with replaced_globals(vars(module), **{n: fake for n, fake in fakes.items() if hasattr(module, n)}):
        dataset = kind(**{name: value for name, value in known.items() if name in takes})
        with suppress(AllDelivered):
            for sample in dataset:
                found.append(sample)
    logged = [float(one["metrics"].get(PER_SAMPLE, 0.0)) for one in found]
    numbers = [one["metrics"]["number"] for one in found]
    return {
        "uses": [float(numbers.count(number)) for number in range(len(counts))],
        "wait": getattr(dataset, SUMMED, sum(logged)),
    }


class _Thread:
    """A fake thread, which never runs."""

    def __init__(self, **_options: object) -> None:
        """Ignore all options."""

    def start(self) -> None:
        """Do nothing."""


def _waits(path: str) -> Boundary:
    return one_call(
        path=path,
        stage="batch",
        call=delivered,
        name="queue",
        arguments={
            "kind": Constant(Function(path)),
            "lengths": ResponseMask(NoPadding()),
            "interval": Knob("poll_interval"),
        },
        remembered=True,
        produced_by={"lengths": "async_rollout_worker.py: scored samples, in the order in which they are ready"},
        outputs={
            "uses": Output("B", "count", "uses", at=Use("queue")["uses"], form=PerRow("list")),
            "seconds of waiting": Output("", "", at=Use("queue")["wait"]),
        },
        settings={"a slow worker": {"poll_interval": 5.0}},
        claims=claims(_SAYS, inert={"poll_interval": (5.0, 1.0)}),
        reach="asynchronous rollouts",
        requires=(no_empty_response,),
    )
