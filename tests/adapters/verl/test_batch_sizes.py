"""What verl's workers make of the batch sizes, on specimens of their call shapes in words of our own."""

import json
from typing import Any

import pytest
import torch

from adapters.checks import Loads, check_verdict, outputs_of, rewritten
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, batch_sizes
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.nonsense_accepted import LAW as CFG003
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

BASE = """
    class Worker:
        def __init__(self):
            raise RuntimeError("there is no cluster")
"""

ACTOR = """
    import torch.distributed
    from torch.distributed.device_mesh import init_device_mesh
    from .base import Worker

    class ActorRolloutRefWorker(Worker):
        def __init__(self, config, role):
            super().__init__()
            self.config, own = config, config.actor
            ranks = torch.distributed.get_world_size()
            shards = own.fsdp_config.fsdp_size
            mesh = init_device_mesh("cuda", mesh_shape=(ranks,) if shards < 0 else (ranks // shards, shards))
            parts = RANKS // own.get("ulysses_sequence_parallel_size", 1)
            own.ppo_mini_batch_size = own.ppo_mini_batch_size * RESPONSES // parts
            if own.ppo_micro_batch_size is not None:
                own.ppo_micro_batch_size_per_gpu = own.ppo_micro_batch_size // parts
"""

CRITIC = """
    from megatron.core import parallel_state as mpu
    from .base import Worker

    class CriticWorker(Worker):
        def __init__(self, config):
            super().__init__()
            self.config = config
            parts = mpu.get_data_parallel_world_size()
            config.ppo_mini_batch_size = config.ppo_mini_batch_size * config.get("rollout_n", 1) // parts
            config.ppo_micro_batch_size //= parts
"""

SOUND = {"RANKS": "mesh.size()", "RESPONSES": "config.rollout.n"}
CONFIG: dict[str, dict[str, Any]] = {
    "actor_rollout_ref": {"actor": {"fsdp_config": {}}, "rollout": {}, "ref": {}},
    "critic": {},
}


def _load(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = rewritten(ACTOR, SOUND | broken)
    tree = {
        "verl/workers/base.py": BASE,
        "verl/workers/fsdp_workers.py": source,
        "verl/workers/megatron_workers.py": CRITIC.replace(
            "from megatron.core import parallel_state as ", "import math as "
        ),
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG),
        "verl/trainer/config/ppo_megatron_trainer.yaml": json.dumps(CONFIG),
        "verl/trainer/__init__.py": "",
    }
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    made = [one for one in batch_sizes.boundaries(target) if isinstance(one, Boundary)]
    return target, {one.path.rpartition(".")[2]: one for one in made if "accepted" not in one.outputs}


def test_settings_and_round_trips(loads: Loads) -> None:
    """A worker has the settings that it reads, and the number of responses is one of both where the actor uses it."""
    target, workers = _load(loads)
    check_round_trips(target, workers.values())
    assert set(workers["ActorRolloutRefWorker"].settings) == {*batch_sizes.FAMILIES, "several responses"}
    assert set(workers["CriticWorker"].settings) == {"data parallel", "several responses"}


def test_by_hand(loads: Loads) -> None:
    """A worker that takes its shard for all ranks keeps twice the mini-batch of 16 prompts."""
    target, workers = _load(loads, RANKS="mesh.shape[0]")
    batch = batch_of(torch.ones(1, 1, dtype=torch.bool))
    sizes = outputs_of(target, workers["ActorRolloutRefWorker"], "hybrid sharding", batch)
    assert sizes["prompts of a mini-batch"].item() == 32
    assert sizes["rows of a micro-batch"].item() == 16


CASES = [
    ("data parallel", {"RANKS": "1"}),
    ("sequence parallel", {"RANKS": "ranks * 2"}),
    ("hybrid sharding", {"RANKS": "mesh.shape[0]"}),
    ("several responses", {"RESPONSES": "min(config.rollout.n, 1)"}),
]


@pytest.mark.parametrize(("setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    """Ranks that are not counted or counted twice, a shard taken for all ranks, and one response of each prompt."""
    target, workers = _load(loads, **(broken if found else {}))
    check_verdict(CFG004, workers["ActorRolloutRefWorker"], setting, target, found=found)


@pytest.mark.parametrize(("setting", "found"), [("data parallel", False), ("several responses", True)])
def test_critic_without_responses(loads: Loads, setting: str, found: bool) -> None:
    """A critic whose configuration does not have the number of responses."""
    target, workers = _load(loads)
    check_verdict(CFG004, workers["CriticWorker"], setting, target, found=found)


REFUSES = """
            rows, micro = own.ppo_mini_batch_size, own.ppo_micro_batch_size_per_gpu
            if CONDITION:
                raise ValueError("mini-batch and micro-batch")
"""


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("micro is not None and rows % micro", False),
        ("own.ppo_micro_batch_size is not None and rows % micro", True),  # only if the size is given over all ranks
        ("micro is not None and rows < micro", True),
        ("micro is not None", True),
    ],
)
def test_sizes_of_micro_batches_that_a_worker_refuses(loads: Loads, condition: str, found: bool) -> None:
    source = rewritten(ACTOR, SOUND) + REFUSES.replace("CONDITION", condition)
    config = {"actor_rollout_ref": {"actor": {"fsdp_config": {"fsdp_size": -1}}, "rollout": {}, "ref": {}}}
    tree = {
        "verl/workers/base.py": BASE,
        "verl/workers/fsdp_workers.py": source,
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(config),
        "verl/trainer/__init__.py": "",
    }
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    made = [one for one in batch_sizes.boundaries(target) if isinstance(one, Boundary)]
    (bound,) = (one for one in made if "accepted" in one.outputs)
    check_round_trips(target, [bound])
    check_verdict(CFG003, bound, "equal micro-batches", target, found=found)
