"""slime's engines with a request during the transfer of weights, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_bound
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.slime import FRAMEWORK
from rl_sentinel.adapters.slime.rollout_pauses import boundaries
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

TRANSFER = """
    import ray
    import torch.distributed as dist

    class UpdateWeightFromDistributed:
        def __init__(self, args, model, weights_getter, *, model_name, quantization_config):
            self.model, self.int4 = model[0], quantization_config is not None

        def connect_rollout_engines(self, engines, lock):
            self.engines = engines

        def each(self, method, **options):
            ray.get([getattr(engine, method).remote(**options) for engine in self.engines])

        def update_weights(self):
            BEFORE
            dist.barrier()
            for experts in (False, True):
                for name, weight in self.model.named_parameters():
                    if experts == ("experts" in name):
                        self.each("update_weights_from_distributed", names=[name])
                        dist.broadcast(weight.data, 0)
                BETWEEN
            AFTER
            dist.barrier()
"""

SOUND = {
    "BEFORE": 'self.each("pause_generation")',
    "BETWEEN": "dist.barrier()",
    "AFTER": 'if self.int4: self.each("post_process_weights")\n            self.each("continue_generation")',
}
SLOW, INT4 = "slow stage", "slow stage, int4"


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ({}, set()),
        ({"BEFORE": 'hasattr(self, "pause_generation")'}, {SLOW, INT4}),
        ({"BETWEEN": "experts or dist.barrier()"}, {SLOW, INT4}),
        ({"AFTER": 'self.each("continue_generation"); self.int4 and self.each("post_process_weights")'}, {INT4}),
        ({"AFTER": 'self.int4 and self.each("post_process_weights")'}, {SLOW, INT4}),
    ],
    ids=["sound", "never paused", "no barrier after the experts", "resumed before int4", "never resumed"],
)
def test_weights_that_sample(loads: Loads, broken: dict[str, str], where: set[str]) -> None:
    path = "slime/backends/megatron_utils/update_weight/update_weight_from_distributed.py"
    target = loads(FRAMEWORK, {path: rewritten(TRANSFER, SOUND | broken)})
    bound = the_bound(boundaries(target))
    check_round_trip(target, bound)
    for setting in (SLOW, INT4):
        check_verdict(PLC004, bound, setting, target, found=setting in where)


def test_a_revision_whose_engines_do_not_pause(loads: Loads) -> None:
    path = "slime/backends/megatron_utils/update_weight/update_weight_from_distributed.py"
    target = loads(FRAMEWORK, {path: rewritten(TRANSFER, SOUND | {"BEFORE": "pass"})})
    assert list(boundaries(target)) == []
