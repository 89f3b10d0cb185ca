"""The weights of AReaL's FSDP engine after one small update, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from rl_sentinel.adapters.areal import FRAMEWORK, master_weights
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class OptimizerConfig:
        type: str = "sgd"
        lr: float = 1e-3
        weight_decay: float = 0.01
        warmup_steps_proportion: float = 0.1
        eps: float = 1e-8

    @dataclass
    class TrainEngineConfig:
        experiment_name: str
        trial_name: str
        path: str
        optimizer: OptimizerConfig
        dtype: str = "bfloat16"
        optimizer_dtype: str = "float32"

    @dataclass
    class FinetuneSpec:
        total_train_epochs: int
        dataset_size: int
        train_batch_size: int
"""

ENGINE = """
    import torch

    class AutoModelForCausalLM:
        @staticmethod
        def from_pretrained(place, **options):
            raise OSError(place)

    class FSDPEngine:
        def _create_llm_actor_or_critic(self):
            kind = getattr(torch, self.config.STORED)
            return AutoModelForCausalLM.from_pretrained(self.config.path, DTYPE=kind)

        def _create_optimizer(self, run):
            options = self.optimizer_config
            rate = RATE
            self.optimizer = torch.optim.AdamW(
                self.model.parameters(), lr=rate, weight_decay=options.weight_decay, eps=options.eps
            )
"""

SOUND = {"STORED": "optimizer_dtype", "DTYPE": "dtype", "RATE": "options.lr"}

CASES: list[tuple[dict[str, str], bool]] = [
    ({}, False),
    ({"DTYPE": "torch_dtype"}, False),
    ({"STORED": "dtype"}, True),
    ({"RATE": "options.lr * 2"}, True),
]


@pytest.mark.parametrize(("broken", "found"), CASES)
def test_small_updates(loads: Loads, broken: dict[str, str], found: bool) -> None:
    """Weights in the type of the forward pass lose the update; a wrong rate is seen too."""
    files = {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": CONFIG,
        "areal/engine/fsdp_engine.py": rewritten(ENGINE, SOUND | broken),
    }
    target = loads(FRAMEWORK, files)
    boundary = the_only(master_weights.boundaries(target))
    check_calls(target, [boundary])
    check_verdict(CFG004, boundary, "a rate that bfloat16 rounds off", target, found=found)


def test_nothing_is_bound_without_a_loader(loads: Loads) -> None:
    files = {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": CONFIG,
        "areal/engine/fsdp_engine.py": ENGINE.replace("_create_llm", "_load_llm"),
    }
    assert list(master_weights.boundaries(loads(FRAMEWORK, files))) == []
