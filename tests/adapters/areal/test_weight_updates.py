"""AReaL's weight update while the engines have a request, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_bound
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.weight_updates import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

API = """
    class InferenceEngine:
        def pause_generation(self):
            raise RuntimeError("there is no engine")
"""

ENGINE = """
    import torch.distributed as dist

    class FSDPEngine:
        def _update_weights_from_distributed(self, meta):
            first = dist.get_rank() == 0
            bucket, full = [], meta.weight_chunked_mem_mb << 20
            if first:
                BEFORE
            for name, value in self._get_model_name_parameters(meta):
                bucket.append((name, self._get_full_tensor(value)))
                if sum(one.numel() * one.element_size() for _, one in bucket) >= full:
                    self._update_bucket_weights_from_distributed(meta, bucket)
                    bucket = []
                    BETWEEN
            if first:
                AFTER
            dist.barrier(group=self.cpu_group)
"""

SOUND = {
    "BEFORE": "self.rollout_engine.pause_generation()",
    "BETWEEN": "pass",
    "AFTER": "self.rollout_engine.continue_generation()",
}


def _bound(loads: Loads, **words: str) -> tuple[Target, Boundary]:
    source = ENGINE
    for name, word in {**SOUND, **words}.items():
        source = source.replace(name, word)
    tree = {"areal/__init__.py": "", "areal/api/engine_api.py": API, "areal/engine/fsdp_engine.py": source}
    target = loads(FRAMEWORK, tree)
    bound = the_bound(boundaries(target))
    return target, bound


@pytest.mark.parametrize(
    "words",
    [{}, {"BEFORE": "pass"}, {"AFTER": "pass"}, {"BETWEEN": SOUND["AFTER"]}],
    ids=["sound", "never paused", "never resumed", "resumed after the first bucket"],
)
def test_weights_that_sample(loads: Loads, words: dict[str, str]) -> None:
    target, bound = _bound(loads, **words)
    check_round_trip(target, bound)
    check_verdict(PLC004, bound, "two buckets", target, found=bool(words))


def test_a_release_whose_engines_are_paused_elsewhere(loads: Loads) -> None:
    engine = "class FSDPEngine:\n    def _update_weights_from_distributed(self, meta): ...\n"
    target = loads(FRAMEWORK, {"areal/engine/fsdp_engine.py": engine})
    assert list(boundaries(target)) == []
