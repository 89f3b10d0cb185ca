"""The tokenizer of verl's trainer, on a specimen in words of our own."""

import json
from typing import Any

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, run_tokenizers
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.setting_arrives_changed import LAW as CFG004

TRAINER = """
    copy_to_local = hf_tokenizer = None

    def omega_conf_to_dataclass(config):
        raise RuntimeError("hydra runs here")

    class PPOTrainer:
        def _init_tokenizer(self):
            model = self.config.actor_rollout_ref.model
            self.tokenizer = MADE
"""

MODEL = """
    from dataclasses import dataclass

    copy_to_local = hf_tokenizer = None

    @dataclass
    class ModelConfig:
        path: str = ""
        tokenizer_path: str | None = None
        custom_chat_template: str | None = None

        def __post_init__(self):
            self.tokenizer = hf_tokenizer(copy_to_local(self.tokenizer_path or self.path))
            if self.custom_chat_template is not None:
                self.tokenizer.chat_template = TEMPLATE
"""

SOUND = {"MADE": "omega_conf_to_dataclass(model).tokenizer", "TEMPLATE": "self.custom_chat_template"}
CONFIG: dict[str, Any] = {
    "actor_rollout_ref": {
        "model": {
            "_target_": "verl.workers.config.model.ModelConfig",
            "path": "",
            "tokenizer_path": None,
            "custom_chat_template": None,
            "external_lib": None,
        }
    }
}
NAME = "a tokenizer of the run"


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    parts = SOUND | broken
    tree = {
        "verl/trainer/ppo/v1/trainer_base.py": rewritten(TRAINER, {"MADE": parts["MADE"]}),
        "verl/workers/config/model.py": rewritten(MODEL, {"TEMPLATE": parts["TEMPLATE"]}),
        "verl/trainer/config/ppo_trainer.yaml": json.dumps(CONFIG),
        "verl/trainer/__init__.py": "",
    }
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    return target, the_only(run_tokenizers.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """The trainer gets the configuration of a run."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({}, False),
        ({"MADE": "hf_tokenizer(copy_to_local(model.path))"}, True),
        ({"MADE": "hf_tokenizer(copy_to_local(model.tokenizer_path))"}, True),
        ({"TEMPLATE": '""'}, True),
    ],
)
def test_options_of_the_tokenizer(loads: Loads, broken: dict[str, str], found: bool) -> None:
    """The tokenizer of the model's path, one without the template of the run, and a template that is lost."""
    target, boundary = _bound(loads, **broken)
    check_verdict(CFG004, boundary, NAME, target, found=found)


def test_releases_without_this_trainer(loads: Loads) -> None:
    """A release without this trainer has no boundary here."""
    assert list(run_tokenizers.boundaries(loads(FRAMEWORK, {"verl/workers/__init__.py": ""}, {}))) == []
