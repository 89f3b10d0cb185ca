"""AReaL's advantages before its configuration of normalizations, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, answering, by_setting, check_verdict
from adapters.kit.round_trip import check_round_trips
from rl_sentinel.adapters.areal import FRAMEWORK, advantages, early_advantages
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.group_leaks_into_group import LAW as GRP001

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class PPOActorConfig:
        group_size: int = 1
        group_reward_norm: bool = False
        adv_norm: bool = True
        reward_clip: float = 20.0
        kl_ctl: float = 0.1
"""

ACTOR = """
    import torch

    class PPOActor:
        def __init__(self, config, engine):
            self.config = config

        def compute_advantages(self, data):
            rewards, size = data["rewards"].clone(), self.config.group_size
            if self.config.group_reward_norm:
                groups = rewards.split(size) if WHOLE else [rewards]
                rewards = torch.cat([(one - one.mean()) / (one.std(unbiased=False) + 1e-6) for one in groups])
            mask = data["loss_mask"].float().roll(-1, 1)
            penalty = self.config.kl_ctl * (data["logprobs"].roll(-1, 1) - data.get("ref_logp", 0 * mask)) * mask
            data["advantages"] = rewards.unsqueeze(1) * mask - penalty
            data["kl_rewards"] = -penalty
"""


def _bound(loads: Loads, whole: str = "True") -> tuple[Target, dict[str, Boundary]]:
    files = {
        "areal/__init__.py": "",
        "areal/api/cli_args.py": CONFIG,
        "areal/engine/ppo/actor.py": ACTOR.replace("WHOLE", whole),
    }
    target = loads(FRAMEWORK, files)
    assert list(advantages.boundaries(target)) == []
    return target, by_setting(early_advantages.boundaries(target))


def test_switches_of_the_release(loads: Loads) -> None:
    target, every = _bound(loads)
    assert set(every) == {"default", "group reward", "advantage, batch"}
    assert all("returns" not in boundary.outputs for boundary in every.values())
    assert answering({("actor", setting): boundary for setting, boundary in every.items()}, target) == []


@pytest.mark.parametrize(("whole", "found"), [("True", False), ("False", True)])
def test_groups(loads: Loads, whole: str, found: bool) -> None:
    target, every = _bound(loads, whole)
    check_verdict(GRP001, every["group reward"], "group reward", target, found=found)


def test_round_trip(loads: Loads) -> None:
    target, every = _bound(loads)
    check_round_trips(target, list(every.values()))
