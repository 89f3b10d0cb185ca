"""TRL's sampler of prompts, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict, judged_at, the_only
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, samplers
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

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

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class GRPOConfig:
        output_dir: str
        use_cpu: bool = True
        bf16: bool = False
        report_to: object = None
        per_device_train_batch_size: int = 8
        num_generations: int = 8
        generation_batch_size: int | None = None
        steps_per_generation: int | None = None

        def __post_init__(self):
            if self.generation_batch_size:
                self.steps_per_generation = STEPS
            self.steps_per_generation = self.steps_per_generation or 1
"""

#: A sampler that knows its length.
PLANNED = """
    class Sampler:
        def __init__(self, rows, size, repeats):
            self.rows, self.size, self.repeats = rows, size, repeats

        def __iter__(self):
            for start in range(0, len(self.rows) - self.size + 1, self.size):
                yield from self.rows[start : start + self.size] * self.repeats

        def __len__(self):
            return LENGTH * self.repeats

    class GRPOTrainer:
        def _get_train_sampler(self, dataset=None):
            size = self.args.generation_batch_size // self.num_generations
            return Sampler(list(self.train_dataset), size, self.num_generations * self.args.steps_per_generation)
"""


def _bound(loads: Loads, kind: str, lost: str = "0") -> tuple[Target, Boundary]:
    target = loads(FRAMEWORK, {f"trl/trainer/{kind}_trainer.py": TREES[kind].replace("LOST", lost)})
    return target, the_only(samplers.boundaries(target))


@pytest.mark.parametrize("kind", TREES)
def test_answers(loads: Loads, kind: str) -> None:
    target, boundary = _bound(loads, kind)
    check_calls(target, [boundary])


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize(("lost", "found"), [("0", False), ("1", True)])
@pytest.mark.parametrize("setting", ["default", "two prompts"])
def test_last_generation_is_lost(loads: Loads, kind: str, setting: str, lost: str, *, found: bool) -> None:
    target, boundary = _bound(loads, kind, lost)
    check_verdict(DAT002, boundary, setting, target, found=found)


@pytest.mark.parametrize(
    ("length", "sound"), [("len(self.rows) // self.size * self.size", True), ("len(self.rows)", False)]
)
def test_length_of_a_sampler_that_drops_a_generation(loads: Loads, length: str, *, sound: bool) -> None:
    target = loads(FRAMEWORK, {"trl/trainer/grpo_trainer.py": PLANNED.replace("LENGTH", length)})
    boundary = the_only(samplers.boundaries(target))
    check_verdict(DAT002, boundary, "two prompts", target, found=not sound)


@pytest.mark.parametrize(
    ("steps", "sound"), [("self.generation_batch_size // self.per_device_train_batch_size", True), ("1", False)]
)
def test_planned_generation(loads: Loads, steps: str, *, sound: bool) -> None:
    """A generation has as many completions, or steps, as its field says."""
    tree = {"trl/trainer/grpo_trainer.py": TRAINER.replace("LOST", "0")}
    tree["trl/trainer/grpo_config.py"] = CONFIG.replace("STEPS", steps)
    target = loads(FRAMEWORK, tree)
    named = by_setting(samplers.boundaries(target))
    completions, by_steps = (judged_at(CFG004, named[name], name, target) for name in samplers.PLANS)
    assert completions.tried > 0
    assert (completions.found is None) is sound
    assert by_steps.found is None
