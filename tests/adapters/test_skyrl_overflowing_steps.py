"""SkyRL's optimizer step with a gradient that is not finite, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, the_bound
from rl_sentinel.adapters.skyrl import FRAMEWORK, overflowing_steps
from rl_sentinel.laws.infinite_gradient_applied import LAW as GRD003

STRATEGY = """
    import torch

    class FSDPStrategy:
        def optimizer_step(self, optimizer, model, scheduler, name="model"):
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=self.max_norm)
            if TAKES:
                optimizer.step()
            optimizer.zero_grad()
            return norm
"""


@pytest.mark.parametrize(("takes", "found"), [("norm.isfinite()", False), ("True", True)])
@pytest.mark.parametrize("setting", ["NaN in the gradient", "infinite gradient"])
def test_found_where_the_step_is_taken(loads: Loads, takes: str, setting: str, *, found: bool) -> None:
    files = {
        "skyrl/backends/__init__.py": "",
        "skyrl/backends/skyrl_train/distributed/fsdp_strategy.py": STRATEGY.replace("TAKES", takes),
    }
    target = loads(FRAMEWORK, files)
    boundary = the_bound(overflowing_steps.boundaries(target))
    assert answering({(setting, setting): boundary}, target) == []
    check_verdict(GRD003, boundary, setting, target, found=found)
