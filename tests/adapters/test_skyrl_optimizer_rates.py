"""Learning rates of SkyRL's workers on FSDP, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.skyrl import FRAMEWORK, optimizer_rates
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

CONFIG = """
    from dataclasses import dataclass, field

    @dataclass
    class Optimizer:
        lr: float = 1e-6
        num_warmup_steps: int = 0
        scheduler: str = "constant_with_warmup"

    @dataclass
    class Model:
        optimizer_config: Optimizer = field(default_factory=Optimizer)

    @dataclass
    class Trainer:
        policy: Model = field(default_factory=Model)
        critic: Model = field(default_factory=Model)

    @dataclass
    class SkyRLTrainConfig:
        trainer: Trainer = field(default_factory=Trainer)
"""

STRATEGY = """
    import torch
    from transformers.trainer import get_scheduler

    class FSDPStrategy:
        def __init__(self, options, updates):
            self.options, self.updates = options, updates

        def setup_distributed(self):
            raise RuntimeError("there is no cluster")

        def _fsdp_init_model(self, model, is_train=True):
            raise RuntimeError("there is no cluster")

        def _fsdp_init_train_model(self, model, optimizer, scheduler):
            module, options = self._fsdp_init_model(model), self.options
            optimizer = torch.optim.AdamW(module.parameters(), lr=options.lr)
            schedule = get_scheduler(
                options.scheduler, optimizer, num_warmup_steps=WARM, num_training_steps=UPDATES
            )
            return module, optimizer, schedule

        def prepare(self, *models):
            (made,) = [self._fsdp_init_train_model(*one) for one in models]
            return made
"""

WORKER = """
    from transformers import AutoConfig
    from ...distributed.fsdp_strategy import FSDPStrategy
    from ..model_wrapper import HFModelWrapper

    class Worker:
        section = ""

        def init_model(self, path, num_training_steps=None):
            about = AutoConfig.from_pretrained(path)
            strategy = FSDPStrategy(getattr(self.cfg, self.section).optimizer_config, num_training_steps)
            strategy.setup_distributed()
            model = HFModelWrapper(path, tied=about.tie_word_embeddings)
            self.model, self.optimizer, self.scheduler = strategy.prepare((model, None, None))
            raise RuntimeError("the rest needs a cluster")

    class FSDPPolicyWorkerBase(Worker):
        section = "policy"
        init_model = lambda self, path, num_training_steps=None: Worker.init_model(self, path, num_training_steps)

    class FSDPCriticWorkerBase(Worker):
        section = "critic"
        init_model = lambda self, path, num_training_steps=None: Worker.init_model(self, path, num_training_steps)
"""

SOUND = {"WARM": "options.num_warmup_steps", "UPDATES": "self.updates"}


def _bound(loads: Loads, **words: str) -> tuple[Target, dict[str, Boundary]]:
    strategy = STRATEGY
    for name, word in {**SOUND, **words}.items():
        strategy = strategy.replace(name, word)
    folder = "skyrl/backends/skyrl_train"
    tree = {
        "skyrl/__init__.py": "",
        "skyrl/train/config.py": CONFIG,
        f"{folder}/distributed/fsdp_strategy.py": strategy,
        f"{folder}/workers/model_wrapper.py": "class HFModelWrapper:\n    pass\n",
        f"{folder}/workers/fsdp/fsdp_worker.py": WORKER,
    }
    target = loads(FRAMEWORK, tree)
    return target, by_setting(optimizer_rates.boundaries(target))


def test_settings(loads: Loads) -> None:
    target, bound = _bound(loads)
    assert set(bound) == {
        f"{model}, {kind}, {warm}"
        for model in ("policy", "critic")
        for kind in ("constant", "cosine")
        for warm in ("no warm-up", "warm-up")
    }
    check_round_trips(target, bound.values())


@pytest.mark.parametrize(
    ("words", "setting", "found"),
    [
        ({}, "critic, constant, warm-up", False),
        ({}, "policy, cosine, warm-up", False),
        ({}, "policy, cosine, no warm-up", False),
        ({"WARM": "-1"}, "critic, constant, warm-up", True),
        ({"WARM": "-1"}, "policy, constant, no warm-up", False),
        ({"UPDATES": "2 * self.updates"}, "policy, cosine, warm-up", True),
    ],
)
def test_schedules(loads: Loads, words: dict[str, str], setting: str, *, found: bool) -> None:
    target, bound = _bound(loads, **words)
    check_verdict(REF001, bound[setting], setting, target, found=found)
