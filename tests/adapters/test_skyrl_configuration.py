"""SkyRL's validation of a configuration, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, judged_at
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK, configuration
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.nonsense_accepted import LAW as CFG003

CONFIG = """
    from dataclasses import dataclass, field

    @dataclass
    class Engine:
        enable_return_routed_experts: bool = False
        distributed_executor_backend: str = "ray"

    @dataclass
    class Megatron:
        moe_enable_routing_replay: bool = False
        transformer_config_kwargs: dict = field(default_factory=dict)

    @dataclass
    class Policy:
        megatron_config: Megatron = field(default_factory=Megatron)

    @dataclass
    class Algorithm:
        loss_reduction: str = "token_mean"
        max_seq_len: int = None

    @dataclass
    class Generator:
        max_turns: int = 1
        inference_engine: Engine = field(default_factory=Engine)

    @dataclass
    class Trainer:
        logger: str = "wandb"
        strategy: str = "fsdp"
        policy: Policy = field(default_factory=Policy)
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
        megatron, engine = cfg.trainer.policy.megatron_config, cfg.generator.inference_engine
        if megatron.moe_enable_routing_replay and REPLAY:
            raise ValueError("the experts cannot be replayed")
"""


#: What makes a replay of experts impossible.
NO_EXPERTS, FUSED = "not engine.enable_return_routed_experts", "megatron.transformer_config_kwargs['moe_router_fusion']"


def _found(loads: Loads, setting: str, *, condition: str = "False", replay: str = "False") -> bool:
    validation = VALIDATION.replace("CONDITION", condition).replace("REPLAY", f"({replay})")
    tree = {"skyrl/__init__.py": "", "skyrl/train/config.py": CONFIG, "skyrl/train/utils/utils.py": validation}
    target = loads(FRAMEWORK, tree)
    bounds = [one for one in configuration.boundaries(target) if isinstance(one, Boundary)]
    (bound,) = [one for one in bounds if setting in one.settings]
    check_round_trip(target, bound)
    judgement = judged_at(CFG003, bound, setting, target)
    assert judgement.tried > 0
    return judgement.found is not None


@pytest.mark.parametrize(
    ("condition", "found"),
    [("own.max_seq_len is None", False), ("False", True), ("cfg.generator.max_turns == 1", True)],
)
def test_sums_without_a_length(loads: Loads, condition: str, *, found: bool) -> None:
    assert _found(loads, "max_seq_len", condition=condition) == found


@pytest.mark.parametrize(
    ("replay", "found"), [(f"{NO_EXPERTS} or {FUSED}", False), (NO_EXPERTS, True), (FUSED, True), ("False", True)]
)
def test_replay_of_experts_that_cannot_be(loads: Loads, replay: str, *, found: bool) -> None:
    """The sampler returns no experts, or the router is fused; the key of the dict is new in the configuration."""
    assert _found(loads, "replay", replay=replay) == found


def test_length_that_the_release_computes(loads: Loads) -> None:
    """Such a release has no option for the length."""
    validation = """
    def validate_cfg(cfg):
        algorithm_config = cfg.trainer.algorithm
        algorithm_config.max_seq_len = 1
    """
    tree = {"skyrl/__init__.py": "", "skyrl/train/config.py": CONFIG, "skyrl/train/utils/utils.py": validation}
    bounds = [one for one in configuration.boundaries(loads(FRAMEWORK, tree)) if isinstance(one, Boundary)]
    assert [name for one in bounds for name in one.settings if name in configuration.LENGTHS] == []
