"""SkyRL's validation of the length that divides sums, on a specimen in words of our own."""

from collections.abc import Callable

import pytest

from adapters.checks import judged_at
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK, configuration
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.nonsense_accepted import LAW as CFG003

Loads = Callable[..., Target]

CONFIG = """
    from dataclasses import dataclass, field

    @dataclass
    class Algorithm:
        loss_reduction: str = "token_mean"
        max_seq_len: int = None

    @dataclass
    class Generator:
        max_turns: int = 1

    @dataclass
    class Trainer:
        logger: str = "wandb"
        algorithm: Algorithm = field(default_factory=Algorithm)

    @dataclass
    class SkyRLTrainConfig:
        trainer: Trainer = field(default_factory=Trainer)
        generator: Generator = field(default_factory=Generator)
"""

VALIDATION = """
    def validate_cfg(cfg):
        own = cfg.trainer.algorithm
        if own.loss_reduction == "seq_mean_token_sum_norm" and CONDITION:
            raise ValueError("the number that divides sums of tokens is missing")
"""


@pytest.mark.parametrize(
    ("condition", "found"),
    [("own.max_seq_len is None", False), ("False", True), ("cfg.generator.max_turns == 1", True)],
)
def test_sums_without_a_length(loads: Loads, condition: str, *, found: bool) -> None:
    tree = {
        "skyrl/__init__.py": "",
        "skyrl/train/config.py": CONFIG,
        "skyrl/train/utils/utils.py": VALIDATION.replace("CONDITION", condition),
    }
    target = loads(FRAMEWORK, tree)

    (bound,) = [one for one in configuration.boundaries(target) if isinstance(one, Boundary)]
    check_round_trip(target, bound)
    judgement = judged_at(CFG003, bound, "max_seq_len", target)
    assert judgement.tried > 0
    assert (judgement.found is not None) == found
