"""The tokenizer of verl's trainer, on specimens of its call shapes in words of our own."""

import json

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_bound
from adapters.kit.round_trip import check_round_trip
from adapters.verl.omegaconf_specimen import OMEGACONF
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, trainer_tokenizers
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

TRAINER = """
    from verl.utils import copy_to_local, hf_tokenizer, omega_conf_to_dataclass

    class PPOTrainer:
        def __init__(self, config):
            raise RuntimeError("there is no cluster")

        def _init_tokenizer(self):
            section = self.config.actor_rollout_ref.model
            self.tokenizer = TOKENIZER
"""

MODEL = """
    from dataclasses import dataclass
    from verl.utils import copy_to_local, hf_tokenizer

    @dataclass
    class HFModelConfig:
        path: str
        tokenizer_path: str | None = None
        custom_chat_template: str | None = None

        def __post_init__(self):
            self.tokenizer = hf_tokenizer(copy_to_local(self.tokenizer_path or self.path))
            if self.custom_chat_template is not None:
                self.tokenizer.chat_template = self.custom_chat_template
"""

UTILS = "copy_to_local = hf_tokenizer = omega_conf_to_dataclass = None\n"
FILE = "path: model\n\ntokenizer_path: null\n\ncustom_chat_template: null\n"
CONFIG: dict[str, dict[str, dict[str, str]]] = {"actor_rollout_ref": {"model": {}}}


def _load(loads: Loads, tokenizer: str) -> Target:
    tree = {
        "verl/utils/__init__.py": UTILS,
        "verl/trainer/__init__.py": "",
        "verl/trainer/ppo/v1/trainer_base.py": rewritten(TRAINER, {"TOKENIZER": tokenizer}),
        "verl/workers/config/model.py": MODEL,
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG),
        "verl/trainer/config/model/hf_model.yaml": FILE,
    }
    return loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})


@pytest.mark.parametrize(
    ("tokenizer", "found"),
    [
        ("omega_conf_to_dataclass(section).tokenizer", False),
        ("hf_tokenizer(copy_to_local(section.path))", True),
        ("hf_tokenizer(copy_to_local(section.tokenizer_path))", True),  # without the template
    ],
)
def test_options_of_the_tokenizer(loads: Loads, tokenizer: str, found: bool) -> None:
    target = _load(loads, tokenizer)
    bound = the_bound(trainer_tokenizers.boundaries(target))
    check_round_trip(target, bound)
    check_verdict(CFG004, bound, "options of the tokenizer", target, found=found)
