"""What reaches Megatron of verl's and SkyRL's optimizers, on specimens of their call shapes in words of our own."""

from collections.abc import Callable

import pytest
import torch

from adapters.checks import Loads, check_verdict, outputs_of
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.skyrl import FRAMEWORK as SKYRL
from rl_sentinel.adapters.skyrl import optimizers as skyrl
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK as VERL
from rl_sentinel.adapters.verl import optimizers as verl
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

SETTING = "options of Adam"

OF_VERL = """
    OptimizerConfig = None

    def init_megatron_optim_config(section, distributed=True):
        first, second = BETAS
        decay = DECAY
        return OptimizerConfig(
            lr=section.lr, clip_grad=section.get("clip_grad"), weight_decay=decay, adam_beta1=first, adam_beta2=second
        )
"""
OPTIONS = "lr: 0.001\nclip_grad: 1.0\nweight_decay: 0.1\nbetas: [0.9, 0.999]\n"

OF_SKYRL = """
    OptimizerConfig = None

    def init_megatron_optim_config(section, overrides):
        beta = getattr(section, "adam_betas", (0.9, 0.999))
        given = {"lr": section.lr, "clip_grad": section.max_grad_norm, "weight_decay": section.weight_decay}
        PASSED
        return OptimizerConfig(**{**given, **overrides})
"""
PASSED = "given.update(adam_beta1=beta[0], adam_beta2=beta[1])"

CONFIG = """
    from dataclasses import dataclass, field

    @dataclass
    class Optimizer:
        lr: float = 0.001
        adam_betas: list = field(default_factory=lambda: [0.9, 0.999])
        weight_decay: float = 0.1
        max_grad_norm: float = 1.0

    @dataclass
    class Policy:
        optimizer_config: Optimizer = field(default_factory=Optimizer)

    @dataclass
    class Trainer:
        policy: Policy = field(default_factory=Policy)

    @dataclass
    class SkyRLTrainConfig:
        trainer: Trainer = field(default_factory=Trainer)
"""


def _verl(loads: Loads, betas: str = "section.betas", decay: str = "section.weight_decay") -> tuple[Target, Boundary]:
    files = {
        "verl/utils/megatron/optimizer.py": OF_VERL.replace("BETAS", betas).replace("DECAY", decay),
        "verl/trainer/config/optim/megatron.yaml": OPTIONS,
    }
    return _bound(loads, VERL, files, verl.boundaries)


def _skyrl(loads: Loads, passed: str = PASSED) -> tuple[Target, Boundary]:
    files = {
        "skyrl/backends/skyrl_train/distributed/megatron/optimizer.py": OF_SKYRL.replace("PASSED", passed),
        "skyrl/train/config/__init__.py": CONFIG,
    }
    return _bound(loads, SKYRL, files, skyrl.boundaries)


def _bound(
    loads: Loads, framework: Framework, files: dict[str, str], boundaries: Callable[[Target], object]
) -> tuple[Target, Boundary]:
    target = loads(framework, files)
    (boundary,) = [one for one in boundaries(target) if isinstance(one, Boundary)]  # type: ignore[attr-defined] # a generator
    return target, boundary


def test_by_hand(loads: Loads) -> None:
    """All five fields arrive; one that is not passed is Megatron's default."""
    target, boundary = _verl(loads)
    check_round_trips(target, [boundary])
    batch = batch_of(torch.ones(1, 1, dtype=torch.bool))
    arrived = {name: round(float(x), 5) for name, x in outputs_of(target, boundary, SETTING, batch).items()}
    assert list(arrived.values()) == [0.0003, 0.7, 0.05, 0.8, 0.95]
    other, without = _skyrl(loads, "pass")
    assert outputs_of(other, without, SETTING, batch)["OptimizerConfig.adam_beta1"].item() == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("betas", "decay", "found"),
    [
        ("section.betas", "section.weight_decay", False),
        ("section.betas", "0.01", True),
        ("(0.9, 0.999)", "section.weight_decay", True),
        ("section.betas[::-1]", "section.weight_decay", True),
    ],
)
def test_verl(loads: Loads, betas: str, decay: str, found: bool) -> None:
    """A fixed decay, fixed betas, and exchanged ones."""
    target, boundary = _verl(loads, betas, decay)
    check_verdict(CFG004, boundary, SETTING, target, found=found)


@pytest.mark.parametrize(("passed", "found"), [(PASSED, False), ("pass", True)])
def test_skyrl(loads: Loads, passed: str, found: bool) -> None:
    """Betas that are not passed on."""
    target, boundary = _skyrl(loads, passed)
    check_verdict(CFG004, boundary, SETTING, target, found=found)
