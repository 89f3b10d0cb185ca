"""The options of an update in the requests of verl's trainers, on specimens in words of our own."""

import json
from typing import Any

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.tensordict_specimen import SYNC, TENSORDICT
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, update_requests
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

READING = """
    def assign(data, **options):
        for name, value in options.items():
            data[name] = value

    def get_non_tensor_data(data, key, default):
        return data.get(key, default)
"""

PADDED = """
    from verl.utils import tensordict_utils as tu

    def left_right_2_no_padding(batch):
        raise RuntimeError("there are no columns")

    class RayPPOTrainer:
        def _update_actor(self, batch):
            actor = self.config.actor_rollout_ref.actor
            data = left_right_2_no_padding(batch.to_tensordict())
            tu.assign(
                data, mini_batch_size=SIZE, epochs=actor.ppo_epochs, seed=SEED, calculate_entropy=ENTROPY,
                dataloader_kwargs={"shuffle": SHUFFLE},
            )
            return self.actor_rollout_wg.update_actor(data)

        def _update_critic(self, batch):
            return self.critic_wg.update_critic(batch)
"""

QUEUED = """
    class PPOTrainer:
        def _update_actor(self, batch, metrics):
            actor = self.config.actor_rollout_ref.actor
            batch.extra_info.update({
                "mini_batch_size": SIZE, "epochs": actor.ppo_epochs, "seed": SEED, "calculate_entropy": ENTROPY,
                "dataloader_kwargs": {"shuffle": SHUFFLE},
            })
            return self.actor_rollout_wg.update_actor(batch)
"""

SOUND = {
    "SIZE": "actor.ppo_mini_batch_size * self.config.actor_rollout_ref.rollout.n",
    "SEED": "actor.data_loader_seed",
    "ENTROPY": "actor.calculate_entropy or actor.entropy_coeff != 0",
    "SHUFFLE": "actor.shuffle",
}
BROKEN = [
    {"SIZE": "256"},
    {"SEED": "1"},
    {"SEED": "None"},
    {"ENTROPY": "actor.entropy_coeff != 0"},
    {"SHUFFLE": "False"},
]
OPTIONS = {
    "ppo_mini_batch_size": 256,
    "ppo_epochs": 1,
    "data_loader_seed": 42,
    "calculate_entropy": False,
    "shuffle": False,
    "entropy_coeff": 0,
}
CONFIG: dict[str, Any] = {"actor_rollout_ref": {"actor": OPTIONS, "rollout": {"n": 4}}, "critic": {}}


def _bound(loads: Loads, **broken: str) -> tuple[Target, list[Boundary]]:
    parts = SOUND | broken
    tree = {
        "verl/trainer/ppo/ray_trainer.py": rewritten(PADDED, parts),
        "verl/trainer/ppo/v1/trainer_base.py": rewritten(QUEUED, parts),
        "verl/trainer/ppo/v1/trainer_sync.py": SYNC,
        "verl/utils/tensordict_utils.py": READING,
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG),
        "verl/trainer/config/actor/actor.yaml": "\n".join(f"{name}: 0" for name in OPTIONS),
        "verl/trainer/__init__.py": "",
    }
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF, "tensordict/__init__.py": TENSORDICT})
    return target, [one for one in update_requests.boundaries(target) if isinstance(one, Boundary)]


def test_answers_and_reads_back(loads: Loads) -> None:
    """Both trainers, and no update whose worker reads its options from its own configuration."""
    target, bound = _bound(loads)
    assert [one.path.rpartition(".ppo.")[2] for one in bound] == [
        "ray_trainer.RayPPOTrainer._update_actor",
        "v1.trainer_base.PPOTrainer._update_actor",
    ]
    check_calls(target, bound)


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("broken", [{}, *BROKEN])
def test_options_of_an_update(loads: Loads, broken: dict[str, str], queued: bool) -> None:
    """A fixed size or order, no seed, and an entropy that is only computed for the loss."""
    target, bound = _bound(loads, **broken)
    check_verdict(CFG004, bound[queued], "options of an update", target, found=bool(broken))


def test_options_that_a_release_does_not_have(loads: Loads) -> None:
    """A release whose configuration files have none of the options has no boundary."""
    tree = {"verl/trainer/ppo/ray_trainer.py": PADDED, "verl/utils/tensordict_utils.py": READING}
    assert list(update_requests.boundaries(loads(FRAMEWORK, tree, {}))) == []
