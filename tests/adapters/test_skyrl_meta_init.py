"""SkyRL's models on the meta device, on a specimen of its constructor in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, judged_at, the_only
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK
from rl_sentinel.adapters.skyrl.meta_init import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.knob_with_side_effect import LAW as CFG002

WRAPPER = """
    import torch
    from torch import nn
    from transformers import AutoConfig, AutoModelForCausalLM

    class HFModelWrapper(nn.Module):
        def __init__(self, name, bf16=True, meta_init=False):
            super().__init__()
            kind = torch.bfloat16 if bf16 else torch.float32
            if not meta_init:
                self.model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=kind)
                return
            with torch.device("meta"):
                self.model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name))
            kept = {name for name, _ in self.model.named_non_persistent_buffers()}
            CAST
"""

SOUND = """for one in self.model.parameters():
                one.data = one.data.to(kind)
            for name, one in self.model.named_buffers():
                one.data = one.data if name in kept else one.data.to(kind)"""


def _bound(loads: Loads, cast: str) -> tuple[Target, Boundary]:
    tree = {
        "skyrl/__init__.py": "",
        "skyrl/backends/skyrl_train/workers/model_wrapper.py": WRAPPER.replace("CAST", cast),
    }
    target = loads(FRAMEWORK, tree)
    return target, the_only(boundaries(target))


def test_sound(loads: Loads) -> None:
    target, boundary = _bound(loads, SOUND)
    assert answering({("model", setting): boundary for setting in boundary.settings}, target) == []
    for setting in boundary.settings:
        check_verdict(CFG002, boundary, setting, target, found=False)
    check_round_trip(target, boundary)


@pytest.mark.parametrize(("cast", "output"), [("self.model.to(kind)", "buffer"), ("pass", "parameter")])
def test_broken(loads: Loads, cast: str, output: str) -> None:
    """All buffers in the type of the parameters, and parameters in float32."""
    target, boundary = _bound(loads, cast)
    found = judged_at(CFG002, boundary, "bfloat16", target).found
    assert found is not None
    assert found.expectation.output == f"bytes of a {output}"
    check_verdict(CFG002, boundary, "float32", target, found=False)
