"""The reach of boundaries of verl's trainers, in releases with and without the option that selects the trainer."""

import pytest

from adapters.checks import Loads
from adapters.verl_specimen import files
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.adapters.verl.entry_points import has_option, reworded

CONFIG = "verl/trainer/config/ppo_trainer.yaml"


@pytest.mark.parametrize(
    ("text", "found"), [("trainer:\n  use_v1: true\n", True), ("trainer:\n  nnodes: 1\n", False), ("", True)]
)
def test_option_of_the_configuration(loads: Loads, text: str, found: bool) -> None:
    tree = {name: source for name, source in files().items() if name != CONFIG}
    target = loads(FRAMEWORK, tree | ({CONFIG: text} if text else {}))
    assert has_option(target) == found


@pytest.mark.parametrize(
    ("reach", "expected"),
    [
        ("trainer.use_v1=True (the default), a restart", "python -m verl.trainer.main_ppo_sync, a restart"),
        ("trainer.use_v1=True, or a restart", "python -m verl.trainer.main_ppo_sync, or a restart"),
        ("trainer.use_v1=False, rollout.name=vllm", "python -m verl.trainer.main_ppo, rollout.name=vllm"),
        ("every run", "every run"),
    ],
)
def test_words_of_earlier_releases(reach: str, expected: str) -> None:
    assert reworded(reach) == expected
