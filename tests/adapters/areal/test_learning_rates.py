"""The learning rates of AReaL's engines, on a specimen of their call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.areal import FRAMEWORK, learning_rates
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

OPTIONS = """
    from dataclasses import dataclass

    @dataclass
    class OptimizerConfig:
        type: str
        lr: float
        lr_scheduler_type: str
        warmup_steps_proportion: float
        min_lr_ratio: float
"""

RUN = """
    from dataclasses import dataclass

    @dataclass
    class FinetuneSpec:
        total_train_epochs: int
        dataset_size: int
        train_batch_size: int

        @property
        def total_train_steps(self):
            return self.total_train_epochs * self.dataset_size // self.train_batch_size
"""

FSDP = """
    import math

    import torch
    from transformers import get_constant_schedule_with_warmup

    class FSDPEngine:
        def _create_optimizer(self, run):
            options, total = self.optimizer_config, run.total_train_steps
            assert options.type == "OPTIMIZER", "Only AdamW optimizer" if options.type == "sgd" else "unknown"
            warm = int(options.warmup_steps_proportion * total)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=options.lr)

            def rate(step):
                if step < warm:
                    return step / warm
                share = (1 + math.cos(math.pi * (step - warm) / (total - warm))) / 2
                return FLOOR + (1 - FLOOR) * share

            if options.lr_scheduler_type == "constant":
                self.lr_scheduler = get_constant_schedule_with_warmup(self.optimizer, WARM)
            else:
                self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, rate)

        def lr_scheduler_step(self):
            self.optimizer.step()
            self.lr_scheduler.step()
"""

MEGATRON = """
    def get_megatron_optimizer(config, model):
        raise RuntimeError("Megatron is not installed")

    class OptimizerParamScheduler:
        pass

    class MegatronEngine:
        def create_optimizer(self, run):
            options, total = self.optimizer_config, run.total_train_steps
            self.optimizer = get_megatron_optimizer(None, self.model)
            warm = int(options.warmup_steps_proportion * total)
            self.lr_scheduler = OptimizerParamScheduler(
                self.optimizer,
                init_lr=0.0 if warm else options.lr,
                max_lr=options.lr,
                min_lr=options.lr * options.min_lr_ratio,
                lr_warmup_steps=warm,
                lr_decay_steps=DECAY,
                lr_decay_style=options.lr_scheduler_type,
            )

        def step_lr_scheduler(self):
            self.lr_scheduler.step(1)
"""


def _bound(
    loads: Loads, floor: str = "options.min_lr_ratio", decay: str = "total", warm: str = "warm"
) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    files = {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": OPTIONS,
        "areal/api/io_struct.py": RUN,
        "areal/engine/fsdp_engine.py": FSDP.replace("FLOOR", floor).replace("WARM", warm).replace("OPTIMIZER", "adam"),
        "areal/engine/megatron_engine.py": MEGATRON.replace("DECAY", decay),
    }
    target = loads(FRAMEWORK, files)
    made = [one for one in learning_rates.boundaries(target) if isinstance(one, Boundary)]
    return target, {(b.path.split(".")[2], setting): b for b in made for setting in b.settings}


@pytest.mark.parametrize("engine", ["fsdp_engine", "megatron_engine"])
def test_by_hand(loads: Loads, engine: str) -> None:
    """Half of the peak after one of two updates of warm-up."""
    target, boundaries = _bound(loads)
    check_round_trips(target, {id(b): b for b in boundaries.values()}.values())
    batch = batch_of(torch.ones(3, 1, dtype=torch.bool))
    for setting in ("cosine, warm-up", "constant, warm-up"):
        rates = outputs_of(target, boundaries[engine, setting], setting, batch)["learning rate"]
        assert rates.tolist() == [0, 0.5, 1]


CASES = [
    ("fsdp_engine", "cosine, no warm-up", {"floor": "0"}),
    ("megatron_engine", "cosine, warm-up", {"decay": "total - warm"}),
]


@pytest.mark.parametrize(("engine", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, engine: str, setting: str, broken: dict[str, str], found: bool) -> None:
    """A floor that is dropped, and a warm-up that is subtracted twice."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(REF001, boundaries[engine, setting], setting, target, found=found)


@pytest.mark.parametrize(("warm", "found"), [("warm", False), ("0", True)])
def test_schedule_of_transformers(loads: Loads, warm: str, found: bool) -> None:
    """A constant rate comes from transformers, which is not installed: with the warm-up, or without it."""
    target, boundaries = _bound(loads, warm=warm)
    boundary = boundaries["fsdp_engine", "constant, warm-up"]
    check_verdict(REF001, boundary, "constant, warm-up", target, found=found)
