"""The head of TRL's reward model, on a specimen of its constructor in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import BASE, TRANSFORMERS
from adapters.trl_specimen import filled, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, reward_head
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
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

#: A trainer whose loss reads every output of the head.
TRAINED = """
    from collections import defaultdict

    import torch
    from torch import nn
    from torch.nn.functional import logsigmoid
    from torch.nn.utils.rnn import pad_sequence
    from trl.trainer.base import Trainer

    class AutoModelForSequenceClassification(nn.Module):
        def __init__(self, folder, num_labels=2):
            super().__init__()
            self.score = nn.Linear(4, num_labels, bias=False)

    def collate(pairs):
        ids = [torch.tensor(pair[side]) for side in ("chosen_ids", "rejected_ids") for pair in pairs]
        real = [torch.ones_like(own) for own in ids]
        return {
            "input_ids": pad_sequence(ids, batch_first=True),
            "attention_mask": pad_sequence(real, batch_first=True),
        }

    class RewardTrainer(Trainer):
        def __init__(self, model, args, train_dataset, processing_class):
            if isinstance(model, str):
                model = AutoModelForSequenceClassification(model{labels})
            super().__init__(model, args, train_dataset, processing_class, None)
            self.data_collator, self._metrics = collate, defaultdict(lambda: defaultdict(list))

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            chosen, rejected = model(**inputs).logits.squeeze(-1).chunk(2)
            return -logsigmoid(chosen - rejected).mean()
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


@pytest.mark.parametrize(("labels", "found"), [(", num_labels=1", False), ("", True)])
def test_outputs_of_the_head(loads: Loads, labels: str, found: bool) -> None:
    """A loss over several outputs of the head is not that of the score."""
    fields = "        max_length: object = 1024\n        gradient_accumulation_steps: int = 1\n"
    tree = {
        "trl/__init__.py": "",
        "trl/trainer/base.py": BASE,
        "trl/trainer/reward_config.py": CONFIG + fields,
        "trl/trainer/reward_trainer.py": filled(TRAINED, {"labels": labels}),
    }
    saved = TRANSFORMERS.replace("\n    class PreTrained", SAVED)
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": saved})
    bound = by_setting(one for one in reward_head.boundaries(target) if one.path.endswith("compute_loss"))
    check_verdict(REF001, bound[NAME], NAME, target, found=found)
