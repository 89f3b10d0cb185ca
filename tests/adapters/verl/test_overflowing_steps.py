"""verl's optimizer steps with a gradient that is not finite, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, overflowing_steps
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.infinite_gradient_applied import LAW as GRD003

ACTOR = """
    import torch

    class DataParallelPPOActor:
        def _optimizer_step(self):
            weights = self.actor_module.parameters()
            norm = torch.nn.utils.clip_grad_norm_(weights, max_norm=self.config.grad_clip)
            if SKIPS:
                self.actor_optimizer.zero_grad()
            else:
                self.actor_optimizer.step()
            return norm
"""

ENGINE = """
    import torch

    class FSDPEngine:
        def optimizer_step(self):
            weights = self.module.parameters()
            norm = torch.nn.utils.clip_grad_norm_(weights, max_norm=self.optimizer_config.clip_grad)
            if SKIPS:
                raise FloatingPointError("the gradient is not finite")
            self.optimizer.step()
            return norm
"""


def _bound(loads: Loads, skips: str) -> tuple[Target, list[Boundary]]:
    files = {
        "verl/workers/actor/dp_actor.py": ACTOR.replace("SKIPS", skips),
        "verl/workers/engine/fsdp/transformer_impl.py": ENGINE.replace("SKIPS", skips),
    }
    target = loads(FRAMEWORK, files)
    return target, [one for one in overflowing_steps.boundaries(target) if isinstance(one, Boundary)]


@pytest.mark.parametrize(
    ("skips", "setting", "found"),
    [
        ("not norm.isfinite()", "NaN in the gradient", False),
        ("not norm.isfinite()", "infinite gradient", False),
        ("norm.isinf()", "NaN in the gradient", True),
        ("False", "infinite gradient", True),
    ],
)
def test_found_where_the_step_is_taken(loads: Loads, skips: str, setting: str, *, found: bool) -> None:
    """A step that is skipped or refused, and one that is taken."""
    target, boundaries = _bound(loads, skips)
    assert len(boundaries) == 2
    pairs = {(one.path, setting): one for one in boundaries}
    assert answering(pairs, target) == []
    for boundary in boundaries:
        check_verdict(GRD003, boundary, setting, target, found=found)
