"""The migration of reward settings, on a specimen in words of our own."""

import json

import pytest

from adapters.checks import Loads, judged_at, the_bound
from adapters.kit.round_trip import check_round_trip
from adapters.verl.omegaconf_specimen import OMEGACONF
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, legacy_settings
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

MIGRATION = """
    def _given(section):
        return {name: value for name, value in section.items() if value is not None}

    def migrate_legacy_reward_impl(config):
        old, new = config.reward_model, config.reward
        if old.num_workers is not None:
            new.num_workers = old.num_workers
        if old.reward_manager is not None:
            new.reward_manager.name = old.reward_manager
        if old.get("reward_kwargs"):
            PLACE["reward_kwargs"] = old["reward_kwargs"]
        new.reward_model.rollout.update(CHOSEN(old.rollout))
        new.sandbox_fusion.update(_given(config.sandbox_fusion))
        return config
"""

CONFIG = {
    "reward_model": {
        "num_workers": None,
        "reward_manager": None,
        "rollout": {"response_length": None, "prompt_length": None},
    },
    "sandbox_fusion": {"max_concurrent": None, "memory_limit_mb": None},
    "reward": {
        "num_workers": 8,
        "reward_manager": {"name": "naive"},
        "reward_model": {"rollout": {"response_length": 2048, "prompt_length": 2048}},
        "sandbox_fusion": {"max_concurrent": 64, "memory_limit_mb": 1024},
    },
}


def _bound(loads: Loads, place: str, chosen: str) -> tuple[Target, Boundary]:
    tree = {
        "verl/experimental/reward_loop/reward_loop.py": MIGRATION.replace("PLACE", place).replace("CHOSEN", chosen),
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG),
        "verl/trainer/__init__.py": "",
    }
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    bound = the_bound(legacy_settings.boundaries(target))
    return target, bound


@pytest.mark.parametrize(
    ("place", "chosen", "found"),
    [
        ("new", "_given", ""),
        ("new.reward_model", "_given", "reward.reward_kwargs.max_resp_len"),  # where nothing reads them
        ("new", "dict", "reward.reward_model.rollout.prompt_length"),  # options that are not set replace others
    ],
)
def test_options_in_their_old_place(loads: Loads, place: str, chosen: str, found: str) -> None:
    target, bound = _bound(loads, place, chosen)
    check_round_trip(target, bound)
    judgement = judged_at(CFG004, bound, next(iter(bound.settings)), target)
    assert judgement.tried > 0
    assert (judgement.found.expectation.name if judgement.found else "") == found
