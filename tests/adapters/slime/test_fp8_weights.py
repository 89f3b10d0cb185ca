"""slime's weights for an engine in FP8, on a specimen in words of our own."""

from collections.abc import Callable

import pytest

from adapters.checks import check_verdict
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.slime import FRAMEWORK, fp8_weights
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

Loads = Callable[..., Target]

CONVERT = """
    import torch

    def convert_to_hf(args, model_name, name, param, quantization_config=None):
        name = name.replace("module.module.decoder", "model").replace("linear_fc2", "down_proj")
        side = quantization_config.get("weight_block_size", [0])[0]
        if not side:
            scale = param.abs().max() / LARGEST
            return [(name, (param / scale).to(torch.float8_e4m3fn)), (f"{name}_scale", scale.view(1))]
        blocks = param.view(1, side, -1, side)
        scale = blocks.abs().amax((1, 3), keepdim=True) / LARGEST
        return [(name, (blocks / scale).reshape(param.shape).to(torch.float8_e4m3fn)), (f"{name}_scale_inv", SENT)]
"""

SOUND = {"LARGEST": "448", "SENT": "scale.view(1, -1)"}


def _bound(loads: Loads, module: str, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = CONVERT
    for word, code in {**SOUND, **broken}.items():
        source = source.replace(word, code)
    tree = {f"slime/backends/megatron_utils/{module}.py": source}
    if module != "update_weight_utils":
        tree["slime/backends/megatron_utils/kernels/fp8_kernel.py"] = "raise ImportError('there is no GPU')"
    target = loads(FRAMEWORK, tree)
    made = [one for one in fp8_weights.boundaries(target) if isinstance(one, Boundary)]
    return target, {next(iter(one.settings)): one for one in made}


@pytest.mark.parametrize("module", ["update_weight_utils", "megatron_to_hf/__init__"])
def test_settings_of_a_revision(loads: Loads, module: str) -> None:
    """Scales of blocks are tried unless they need a kernel on a GPU."""
    target, mine = _bound(loads, module)
    blocks = {"FP8, a scale per block"} if module == "update_weight_utils" else set()
    assert set(mine) == blocks | {"FP8, one scale"}
    check_round_trips(target, mine.values())


CASES = [
    ("FP8, one scale", {"LARGEST": "1e6"}),  # beyond the format
    ("FP8, a scale per block", {"SENT": "1 / scale.view(1, -1)"}),
    ("FP8, a scale per block", {"SENT": "scale.view(-1).flip(0)"}),
]


@pytest.mark.parametrize(("setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    target, mine = _bound(loads, "update_weight_utils", **(broken if found else {}))
    check_verdict(PLC004, mine[setting], setting, target, found=found)
