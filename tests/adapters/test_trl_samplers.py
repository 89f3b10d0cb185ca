"""TRL's sampler of prompts, on a specimen of its call shapes in words of our own."""

from collections.abc import Callable

import pytest

from adapters.checks import answering, judged_at
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, samplers
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

Loads = Callable[..., Target]

TRAINER = """
    class GRPOTrainer:
        def _get_train_sampler(self, dataset=None):
            rows, size = list(self.train_dataset), self.args.generation_batch_size // self.num_generations
            if self.shuffle_dataset:
                rows = rows[::-1]
            for start in range(0, len(rows) - LOST, size):
                for _ in range(self.num_iterations * self.args.steps_per_generation):
                    yield from (row for row in rows[start : start + size] for _ in range(self.num_generations))
"""

#: One completion for each prompt, for which the batch is not configured by a name of its own.
DISTILLATION = """
    class DistillationTrainer:
        def _get_train_sampler(self, dataset=None):
            args = self.args
            rows = list(self.train_dataset)[:: -1 if self.shuffle_dataset else 1]
            size = args.per_device_train_batch_size * args.gradient_accumulation_steps
            for start in range(0, len(rows) - LOST, size):
                for _ in range(args.gradient_accumulation_steps):
                    yield from rows[start : start + size]
"""

TREES = {"grpo": TRAINER, "distillation": DISTILLATION}


def _bound(loads: Loads, kind: str, lost: str = "0") -> tuple[Target, Boundary]:
    target = loads(FRAMEWORK, {f"trl/trainer/{kind}_trainer.py": TREES[kind].replace("LOST", lost)})
    (boundary,) = samplers.boundaries(target)
    assert isinstance(boundary, Boundary)
    return target, boundary


@pytest.mark.parametrize("kind", TREES)
def test_answers(loads: Loads, kind: str) -> None:
    target, boundary = _bound(loads, kind)
    assert answering({("sampler", setting): boundary for setting in boundary.settings}, target) == []
    check_round_trips(target, [boundary])


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize(("lost", "found"), [("0", False), ("1", True)])
@pytest.mark.parametrize("setting", ["default", "two prompts"])
def test_last_generation_is_lost(loads: Loads, kind: str, setting: str, lost: str, *, found: bool) -> None:
    target, boundary = _bound(loads, kind, lost)
    judgement = judged_at(DAT002, boundary, setting, target)
    assert judgement.tried > 0
    assert (judgement.found is not None) is found
