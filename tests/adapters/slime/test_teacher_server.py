"""slime's queue of a teacher server, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.teacher_server import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

SERVER = """
    from dataclasses import dataclass

    import ray

    @dataclass
    class Box:
        inner: dict

    @ray.remote
    class SampleManager:
        def __init__(self, args, pg):
            self.waiting, self.held, self.done, self.count = [], {}, {}, 0

        def set_train_parallel_config(self, config):
            self.config = config

        def submit(self, input_ids, response_length, loss_mask):
            self.count += 1
            self.waiting.append((self.count, input_ids, response_length, MASK))
            return self.count

        def get_input_data(self, worker):
            name, tokens, length, mask = self.waiting.pop(0)
            self.held.setdefault(worker, []).append(name)
            return [Box(ray.put({"tokens": [tokens], "response_lengths": [length], "loss_masks": [mask]}))]

        def save_log_probs(self, worker, outputs):
            self.done[self.held[WORKER].pop(0)] = outputs[0]

        def get_result(self, name):
            return self.done.pop(name)
"""

SOUND = {"MASK": "loss_mask", "WORKER": "worker"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(SERVER, SOUND | broken)
    target = loads(FRAMEWORK, {"slime/backends/megatron_utils/server/megatron_server.py": source})
    return target, the_only(boundaries(target))


def test_answers(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({}, False),
        ({"MASK": "[1] * response_length"}, True),
        ({"WORKER": "max(self.held, key=lambda w: len(self.held[w]))"}, True),
    ],
)
def test_each_request_has_its_own(loads: Loads, broken: dict[str, str], found: bool) -> None:
    """A mask that is not passed on, and log-probs of another worker's request."""
    target, boundary = _bound(loads, **broken)
    check_verdict(PLC004, boundary, "default", target, found=found)
