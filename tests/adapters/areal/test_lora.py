"""AReaL's saved LoRA adapter, on a specimen of its engine in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, the_only
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.lora import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.resume_differs import LAW as RES001

ENGINE = """
    import torch.distributed as dist

    class FSDPEngine:
        @property
        def cpu_group(self):
            raise RuntimeError("not initialized")

        def _save_lora_to_hf(self, path):
            from safetensors.torch import save_file

            state = {}
            for name, param in self.model.named_parameters():
                if param.requires_grad and "lora_" in name:
                    state[NAME] = self._cast_to_compute_dtype(param.data)
            if dist.get_rank() == 0:
                save_file(state, path + "/adapter_model.safetensors")
            dist.barrier(group=self.cpu_group)
"""


def _bound(loads: Loads, name: str) -> tuple[Target, Boundary]:
    target = loads(FRAMEWORK, {"areal/__init__.py": "", "areal/engine/fsdp_engine.py": ENGINE.replace("NAME", name)})
    return target, the_only(boundaries(target))


def test_sound(loads: Loads) -> None:
    target, boundary = _bound(loads, 'name.replace(".default.", ".")')
    assert answering({("adapter", "default"): boundary}, target) == []
    check_verdict(RES001, boundary, "default", target, found=False)
    check_round_trip(target, boundary)


@pytest.mark.parametrize("name", ["name", 'name.replace(".default.", ".").removeprefix("base_model.model.")'])
def test_broken(loads: Loads, name: str) -> None:
    """Names with the adapter's, and names without PEFT's prefix."""
    target, boundary = _bound(loads, name)
    check_verdict(RES001, boundary, "default", target, found=True)
