"""The head of TRL's reward model, on a specimen of its constructor in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import TRANSFORMERS
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, reward_head
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.knob_with_side_effect import LAW as CFG002
from rl_sentinel.laws.knob_without_effect import LAW as CFG001

NAME = "model by name"

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class RewardConfig:
        output_dir: str = ""
        seed: int = 42
"""

TRAINER = """
    import torch
    from torch import nn

    class AutoModelForSequenceClassification(nn.Module):
        def __init__(self, folder):
            super().__init__()
            assert (folder / "weights").exists()
            self.score = nn.Linear(4, 1, bias=False)

    class RewardTrainer:
        def __init__(self, model, args, train_dataset, processing_class):
            SEEDED
            if isinstance(model, str):
                from pathlib import Path

                model = AutoModelForSequenceClassification(Path(model))
            self.model = model
"""

#: A model that can be saved.
SAVED = """
        def save_pretrained(self, folder):
            from pathlib import Path

            Path(folder, "weights").write_text("")

    class PreTrained"""


def _bound(loads: Loads, seeded: str = "torch.manual_seed(args.seed)") -> tuple[Target, Boundary]:
    tree = {
        "trl/__init__.py": "",
        "trl/trainer/reward_config.py": CONFIG,
        "trl/trainer/reward_trainer.py": TRAINER.replace("SEEDED", seeded),
    }
    saved = TRANSFORMERS.replace("\n    class PreTrained", SAVED)
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": saved})
    return target, the_only(reward_head.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """The constructor is called with the folder of a model."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize("law", [CFG001, CFG002])
@pytest.mark.parametrize(("seeded", "sound"), [("torch.manual_seed(args.seed)", True), ("pass", False)])
def test_seed_of_the_head(loads: Loads, law: Law, seeded: str, sound: bool) -> None:
    """The seed of the configuration decides the head, not what the process has drawn before."""
    target, boundary = _bound(loads, seeded)
    check_verdict(law, boundary, NAME, target, found=not sound)


def test_models_that_are_given(loads: Loads) -> None:
    """A constructor that takes a model only makes no head."""
    tree = {
        "trl/__init__.py": "",
        "trl/trainer/reward_config.py": CONFIG,
        "trl/trainer/reward_trainer.py": TRAINER.replace("isinstance(model, str)", "False"),
    }
    assert list(reward_head.boundaries(loads(FRAMEWORK, tree, overlay()))) == []
