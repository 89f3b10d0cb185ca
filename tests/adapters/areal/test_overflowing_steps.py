"""AReaL's optimizer step with a gradient that is not finite, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, the_bound
from rl_sentinel.adapters.areal import FRAMEWORK, overflowing_steps
from rl_sentinel.laws.infinite_gradient_applied import LAW as GRD003

ENGINE = """
    import math

    def fsdp2_clip_grad_norm(parameters, max_norm, group):
        raise RuntimeError("there are no ranks")

    class FSDPEngine:
        def optimizer_step(self):
            group = self.world_mesh["dp"].get_group()
            norm = fsdp2_clip_grad_norm(
                list(self.model.parameters()), max_norm=self.optimizer_config.gradient_clipping, group=group
            )
            if TAKES:
                self.optimizer.step()
            return {"grad_norm": norm, "lr": self.lr_scheduler.get_last_lr()[0]}
"""


@pytest.mark.parametrize(("takes", "found"), [("math.isfinite(norm)", False), ("norm < math.inf or True", True)])
@pytest.mark.parametrize("setting", ["NaN in the gradient", "infinite gradient"])
def test_found_where_the_step_is_taken(loads: Loads, takes: str, setting: str, *, found: bool) -> None:
    files = {"areal/__init__.py": "", "areal/engine/fsdp_engine.py": ENGINE.replace("TAKES", takes)}
    target = loads(FRAMEWORK, files)
    boundary = the_bound(overflowing_steps.boundaries(target))
    assert answering({(setting, setting): boundary}, target) == []
    check_verdict(GRD003, boundary, setting, target, found=found)


def test_mesh_by_position(loads: Loads) -> None:
    """Until December 2025, the mesh of devices is the second argument."""
    source = ENGINE.replace("TAKES", "True").replace("max_norm=", "group, max_norm=").replace(", group=group", "")
    files = {"areal/__init__.py": "", "areal/engine/fsdp_engine.py": source}
    target = loads(FRAMEWORK, files)
    boundary = the_bound(overflowing_steps.boundaries(target))
    check_verdict(GRD003, boundary, "infinite gradient", target, found=True)
