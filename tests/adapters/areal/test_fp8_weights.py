"""AReaL's weights for an engine in FP8, on a specimen in words of our own."""

from collections.abc import Callable

import pytest

from adapters.checks import check_verdict
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK, fp8_weights
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

Loads = Callable[..., Target]

CONVERT = """
    import torch

    def convert_to_hf(tf_config, model_name, name, param, quantization_config=None):
        name = name.replace("module.module.decoder", "model").replace("linear_fc2", "down_proj")
        scale = SCALE
        return [(name, (param / scale).to(torch.float8_e4m3fn)), (f"{name}_scale", scale.view(1).bfloat16())]
"""


@pytest.mark.parametrize(
    ("scale", "found"), [("param.abs().max() / 448", False), ("torch.ones(())", True), ("param.max() / 448", True)]
)
def test_scale_of_a_weight(loads: Loads, scale: str, found: bool) -> None:
    """No scale is right for small weights, and the largest weight may be negative."""
    target = loads(FRAMEWORK, {"areal/engine/megatron_utils/megatron.py": CONVERT.replace("SCALE", scale)})
    (boundary,) = (one for one in fp8_weights.boundaries(target) if isinstance(one, Boundary))
    check_verdict(PLC004, boundary, "FP8, one scale", target, found=found)
    check_round_trip(target, boundary)


def test_release_without_fp8(loads: Loads) -> None:
    """A conversion without a quantization has no boundary."""
    source = CONVERT.replace(", quantization_config=None", "").replace("SCALE", "1")
    assert list(fp8_weights.boundaries(loads(FRAMEWORK, {"areal/utils/megatron.py": source}))) == []
