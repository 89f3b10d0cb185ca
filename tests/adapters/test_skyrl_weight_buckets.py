"""The buckets of weights that SkyRL sends, on a specimen of the extraction in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK, weight_buckets
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

EXTRACTOR = """
    from types import SimpleNamespace

    import torch

    class MegatronWeightExtractor:
        def __init__(self, bridge, actor_module, enable_bucketing, bucket_size_threshold_GB, training_dtype):
            self.bridge, self.module = bridge, actor_module
            self.room = bucket_size_threshold_GB * 2**30

        def _init_param_buckets(self, tasks):
            units = {}
            for number, task in enumerate(tasks):
                together = TOGETHER and task.mapping.is_grouped_export
                units.setdefault(task.mapping.group_key if together else number, []).append(task)
            buckets, used = [], 0
            for unit in units.values():
                size = sum(task.param_weight.numel() * task.param_weight.element_size() for task in unit)
                if not buckets or used + size > self.room:
                    buckets.append([])
                    used = 0
                buckets[-1] += unit
                used += size
            return buckets

        def extract_weights(self, dtype):
            device = torch.cuda.current_device()
            for bucket in self._init_param_buckets(self.bridge.get_conversion_tasks(self.module))[FIRST:]:
                pairs = list(self.bridge.export_hf_weights(self.module, conversion_tasks=bucket))
                names, tensors = [name for name, _ in pairs], [tensor.to(device, dtype) for _, tensor in pairs]
                yield SimpleNamespace(names=names, tensors=tensors)
"""

METADATA = """
        def get_weight_metadata(self, dtype):
            tasks = self.bridge.get_conversion_tasks(self.module)
            buckets = BUCKETS
            calls = [self.bridge.export_hf_weights(self.module, conversion_tasks=bucket) for bucket in buckets]
            every = [pair for call in calls for pair in call]
            return {"names": [name for name, _ in every], "shapes": [list(tensor.shape) for _, tensor in every]}
"""


def _bound(loads: Loads, together: str = "True", first: str = "0", buckets: str = "") -> tuple[Target, Boundary]:
    """The boundary of the extraction; if ``buckets`` is not empty, that of the metadata."""
    source = EXTRACTOR.replace("TOGETHER", together).replace("FIRST", first)
    source = source.rstrip() + "\n" + METADATA.replace("BUCKETS", buckets) if buckets else source
    worker = "skyrl/backends/skyrl_train/workers/megatron/megatron_worker.py"
    target = loads(FRAMEWORK, {"skyrl/__init__.py": "", worker: source})
    *others, bound = weight_buckets.boundaries(target)
    assert len(others) == bool(buckets)
    assert isinstance(bound, Boundary)
    return target, bound


@pytest.mark.parametrize("law", [DAT002, PLC004])
@pytest.mark.parametrize(
    ("words", "setting", "found"),
    [
        ({}, "weights", False),
        ({}, "groups of experts", False),
        ({"together": "False"}, "weights", False),
        ({"together": "False"}, "groups of experts", True),
        ({"first": "1"}, "weights", True),
    ],
    ids=["sound", "sound groups", "split, no group", "split groups", "first bucket left out"],
)
def test_weights_that_are_sent(loads: Loads, law: Law, words: dict[str, str], setting: str, *, found: bool) -> None:
    target, bound = _bound(loads, **words)
    check_round_trip(target, bound)
    check_verdict(law, bound, setting, target, found=found)


@pytest.mark.parametrize(
    ("buckets", "setting", "found"),
    [
        ("self._init_param_buckets(tasks)", "metadata, groups of experts between weights", False),
        ("[tasks]", "metadata, weights", False),
        ("[tasks[::-1]]", "metadata, groups of experts between weights", False),
        ("[[task] for task in tasks[::-1]]", "metadata, weights", True),
    ],
    ids=["buckets", "whole", "whole, the bridge has an order", "another order"],
)
def test_names_of_the_weights_that_are_received(loads: Loads, buckets: str, setting: str, *, found: bool) -> None:
    """Engines read the tensors in the order of the metadata, which must be that of the transfer."""
    target, bound = _bound(loads, buckets=buckets)
    check_round_trip(target, bound)
    check_verdict(PLC004, bound, setting, target, found=found)


def test_announced_weights_that_are_never_sent(loads: Loads) -> None:
    """The metadata has the groups of experts, and the bridge exports none of a group that is split."""
    target, bound = _bound(loads, together="False", buckets="[tasks]")
    check_verdict(PLC004, bound, "metadata, groups of experts", target, found=True)


def test_a_release_without_buckets(loads: Loads) -> None:
    assert list(weight_buckets.boundaries(loads(FRAMEWORK, {"skyrl/__init__.py": ""}))) == []
