"""verl's learning rates, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, judged_at
from adapters.kit.round_trip import check_calls
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, learning_rates
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

SCHEDULES = """
    import math
    from torch.optim.lr_scheduler import LambdaLR

    def get_constant_schedule_with_warmup(optimizer, num_warmup_steps):
        return LambdaLR(optimizer, lambda step: CONSTANT)

    def get_cosine_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps, min_lr_ratio=0.0):
        def rate(step):
            if step < num_warmup_steps:
                return step / num_warmup_steps
            done = (step - num_warmup_steps) / (num_training_steps - num_warmup_steps)
            return min_lr_ratio + (1 - min_lr_ratio) * (1 + math.cos(math.pi * done)) / 2

        return LambdaLR(optimizer, rate)
"""

ENGINE = """
    from verl.utils.torch_functional import get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup

    class FSDPEngine:
        def _build_lr_scheduler(self, optimizer):
            about = self.optimizer_config
            warm_up = about.lr_warmup_steps if about.lr_warmup_steps > 0 else WARM_UP
            if about.lr_scheduler_type == "constant":
                return get_constant_schedule_with_warmup(optimizer, warm_up)
            if about.get("lr_scheduler_type", "constant") == "cosine":
                return get_cosine_schedule_with_warmup(
                    optimizer, warm_up, about.total_training_steps, about.min_lr_ratio
                )
            raise NotImplementedError
"""

SOUND = "min(1.0, step / num_warmup_steps) if num_warmup_steps else 1.0"
SHARE = "int(about.lr_warmup_steps_ratio * about.total_training_steps)"


def _bound(loads: Loads, constant: str = SOUND, warm_up: str = SHARE) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    tree = files()
    tree["verl/utils/torch_functional.py"] = SCHEDULES.replace("CONSTANT", constant)
    tree["verl/workers/engine/fsdp/transformer_impl.py"] = ENGINE.replace("WARM_UP", warm_up)
    target = loads(FRAMEWORK, tree)
    made = [one for one in learning_rates.boundaries(target) if isinstance(one, Boundary)]
    return target, {(one.path.rpartition(".")[2], name): one for one in made for name in one.settings}


def test_sound(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert [name for name, _ in boundaries] == [
        *["get_constant_schedule_with_warmup"] * 2,
        *["get_cosine_schedule_with_warmup"] * 2,
        *["_build_lr_scheduler"] * 4,
    ]
    check_calls(target, boundaries.values())
    for (_, setting), boundary in boundaries.items():
        check_verdict(REF001, boundary, setting, target, found=False)


@pytest.mark.parametrize("constant", ["min(1.0, step / max(1, num_warmup_steps))", "1.0"])
def test_wrong_rates_found(loads: Loads, constant: str) -> None:
    """The first update has a rate of 0 without a warm-up; there is no warm-up."""
    target, boundaries = _bound(loads, constant=constant)
    setting = "warm-up" if constant == "1.0" else "no warm-up"
    found = judged_at(REF001, boundaries["get_constant_schedule_with_warmup", setting], setting, target).found
    assert found is not None


def test_ignored_share_found(loads: Loads) -> None:
    """The engine does not read the share of the warm-up."""
    target, boundaries = _bound(loads, warm_up="0")
    setting = "cosine, warm-up"
    check_verdict(REF001, boundaries["_build_lr_scheduler", setting], setting, target, found=True)
