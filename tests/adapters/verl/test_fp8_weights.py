"""verl's weights for an engine in FP8, on a specimen in words of our own."""

from collections.abc import Callable

import pytest

from adapters.checks import check_verdict
from adapters.kit.round_trip import check_round_trip
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, fp8_weights
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

Loads = Callable[..., Target]

HELPER = """
    import torch
    from verl.utils.kernel.fp8_kernel import scaled_fp8_blockwise

    class FP8QuantizerHelper:
        def __init__(self, quant_config):
            self.side = quant_config["weight_block_size"]

        async def quant_weights_by_name(self, weights, dtype=torch.bfloat16):
            assert torch.distributed.get_rank() == 0
            for name, weight in weights:
                if name.endswith(KEPT):
                    yield name, weight
                    continue
                numbers, scale = scaled_fp8_blockwise(weight.to(dtype), self.side)
                yield name, numbers
                yield name + "_scale_inv", SENT
"""

KERNEL = """
    import torch

    _TRITON_AVAILABLE = True

    def scaled_fp8_blockwise(weight, side):
        if _TRITON_AVAILABLE:
            raise RuntimeError("there is no GPU")
        blocks = weight.float().view(1, side[0], -1, side[1])
        scale = blocks.abs().amax((1, 3), keepdim=True) / 448
        return (blocks / scale).view(weight.shape).to(torch.float8_e4m3fn), scale.view(1, -1, 1)
"""


EARLY = """
    from verl.utils.kernel.fp8_kernel import scaled_fp8_blockwise

    def quant_weights_by_name(weights, quant_config, dtype=None):
        for name, weight in weights:
            if name.endswith(KEPT):
                yield name, weight
                continue
            numbers, scale = scaled_fp8_blockwise(weight, quant_config["weight_block_size"])
            yield name, numbers
            yield name + "_scale_inv", scale.squeeze(-1)
"""

SGLANG = "verl/utils/sglang/sglang_fp8_utils.py"
KERNELS = {"verl/utils/kernel/fp8_kernel.py": KERNEL}

#: The function that quantizes and its kernel: for any engine; for SGLang; for SGLang, both in one module.
PLACES = {
    "any engine": {"verl/utils/fp8_utils.py": HELPER, **KERNELS},
    "SGLang": {SGLANG: EARLY, **KERNELS},
    "SGLang, one module": {
        SGLANG: EARLY.replace("from verl.utils.kernel.fp8_kernel import scaled_fp8_blockwise", "")
        + KERNEL.replace("_TRITON_AVAILABLE = True", "").replace("if _TRITON_AVAILABLE", "if torch.cuda.is_available()")
    },
}


def _bound(loads: Loads, tree: dict[str, str]) -> tuple[Target, dict[str, Boundary]]:
    target = loads(FRAMEWORK, files() | tree)
    made = [one for one in fp8_weights.boundaries(target) if isinstance(one, Boundary)]
    return target, {next(iter(one.settings)): one for one in made}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("kept", "wrong"),
    [
        ('("norm.weight", "mlp.gate.weight")', set()),
        ('"norm.weight"', {"the router"}),
        ('"gate.weight"', {"a norm"}),
    ],
)
def test_weights_that_stay(loads: Loads, place: str, kept: str, wrong: set[str]) -> None:
    """A router, or a norm, whose numbers are those of FP8 without their scale."""
    tree = {
        path: source.replace("SENT", "scale.squeeze(-1)").replace("KEPT", kept)
        for path, source in PLACES[place].items()
    }
    target, bound = _bound(loads, tree)
    for name in fp8_weights.KEPT:
        check_verdict(PLC004, bound[name], name, target, found=name in wrong)
        check_round_trip(target, bound[name])


@pytest.mark.parametrize(("sent", "found"), [("scale.squeeze(-1)", False), ("scale.squeeze(-1).reciprocal()", True)])
def test_scales_of_blocks(loads: Loads, sent: str, found: bool) -> None:
    """The engine multiplies by what is sent; its inverse is another weight."""
    source = HELPER.replace("SENT", sent).replace("KEPT", '("norm.weight", "mlp.gate.weight")')
    target, bound = _bound(loads, {"verl/utils/fp8_utils.py": source, **KERNELS})
    boundary = bound["FP8, a scale per block"]
    check_verdict(PLC004, boundary, "FP8, a scale per block", target, found=found)
    check_round_trip(target, boundary)
