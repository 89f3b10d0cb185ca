"""SkyRL's learning rates, on a specimen of its trainer in words of our own."""

import pytest

from adapters.checks import Loads, answering, by_setting, check_verdict
from adapters.kit.round_trip import check_round_trip
from rl_sentinel.adapters.skyrl import FRAMEWORK, learning_rates
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

CONFIG = """
    from dataclasses import dataclass, field

    @dataclass
    class Placement:
        colocate_all: bool = True
        colocate_policy_ref: bool = True

    @dataclass
    class Algorithm:
        use_kl_loss: bool = True
        use_kl_in_reward: bool = False

    @dataclass
    class Model:
        path: str = None

    @dataclass
    class Critic:
        model: Model = field(default_factory=Model)

    @dataclass
    class Trainer:
        placement: Placement = field(default_factory=Placement)
        algorithm: Algorithm = field(default_factory=Algorithm)
        critic: Critic = field(default_factory=Critic)
        train_batch_size: int = 16
        policy_mini_batch_size: int = 16
        critic_mini_batch_size: int = 16
        update_epochs_per_batch: int = 1

    @dataclass
    class SkyRLTrainConfig:
        trainer: Trainer = field(default_factory=Trainer)
"""

TRAINER = """
    import ray

    class PPORayActorGroup:
        def __init__(self, config, nodes, gpus, worker, **options):
            raise RuntimeError("workers are not started here")

    class RayPPOTrainer:
        def build_models(self, policy_worker, critic_worker, ref_worker):
            config = self.cfg.trainer
            assert not config.placement.colocate_all and not config.algorithm.use_kl_loss
            for worker, size in ((policy_worker, config.policy_mini_batch_size), (critic_worker, CRITIC)):
                group = PPORayActorGroup(config, 1, 1, worker)
                steps = self.total_training_steps * (config.train_batch_size // size) * EPOCHS
                ray.get(group.async_init_model("model", num_training_steps=steps))
                group.offload_to_cpu()
"""

SOUND = {"CRITIC": "config.critic_mini_batch_size", "EPOCHS": "config.update_epochs_per_batch"}


def _bound(loads: Loads, **words: str) -> tuple[Target, dict[str, Boundary]]:
    trainer = TRAINER
    for name, word in {**SOUND, **words}.items():
        trainer = trainer.replace(name, word)
    files = {"skyrl/__init__.py": "", "skyrl/train/config.py": CONFIG, "skyrl/train/trainer.py": trainer}
    target = loads(FRAMEWORK, files)
    return target, by_setting(learning_rates.boundaries(target))


def test_answers(loads: Loads) -> None:
    target, every = _bound(loads)
    assert set(every) == {"policy, cosine", "critic, cosine"}
    assert answering({("trainer", setting): boundary for setting, boundary in every.items()}, target) == []


@pytest.mark.parametrize(
    ("words", "setting", "found"),
    [
        ({}, "policy, cosine", False),
        ({}, "critic, cosine", False),
        ({"EPOCHS": "1"}, "policy, cosine", True),
        ({"CRITIC": "config.policy_mini_batch_size"}, "critic, cosine", True),
    ],
    ids=["policy", "critic", "epochs forgotten", "mini-batches of the policy"],
)
def test_planned_steps(loads: Loads, words: dict[str, str], setting: str, found: bool) -> None:
    target, every = _bound(loads, **words)
    check_verdict(REF001, every[setting], setting, target, found=found)


def test_round_trip(loads: Loads) -> None:
    target, every = _bound(loads)
    for boundary in every.values():
        check_round_trip(target, boundary)
