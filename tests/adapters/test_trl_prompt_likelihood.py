"""TRL's odds-ratio loss with prompts of several tokens, on a specimen of our own: prompts have a likelihood too."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, preferences
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.differs_from_reference import LAW as REF001

ORPO = "trl.trainer.orpo_trainer.ORPOTrainer.compute_loss"

#: Setting -> whether the likelihood of responses alone differs there from that of prompts and responses.
SETTINGS = {"default": False, "prompts of several tokens": True}

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class ORPOConfig:
        output_dir: str = ""
        beta: float = 0.1
        gradient_accumulation_steps: int = 1
"""

TRAINER = """
    import torch
    from torch.nn.functional import logsigmoid
    from trl.trainer.base import Trainer
    from trl.trainer.dpo_trainer import Collator

    class ORPOTrainer(Trainer):
        def __init__(self, model, args, train_dataset, processing_class):
            super().__init__(model, args, train_dataset, processing_class, None)
            self.data_collator = Collator(None, "keep_start")

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            ids, mask = inputs["input_ids"], inputs["completion_mask"][:, 1:].bool()
            shares = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
            own = shares.gather(2, ids[:, 1:].unsqueeze(2)).squeeze(2)
            chosen, rejected = ((own * mask).sum(1) / mask.sum(1)).chunk(2)
            odds = chosen - rejected - torch.log(-torch.expm1(chosen)) + torch.log(-torch.expm1(rejected))
            counted, pairs = {counted}, len(chosen)
            likelihood = own[:pairs][counted[:pairs]].mean()
            return -likelihood - self.args.beta * logsigmoid(odds).mean()  # def tokenize_row
"""


def _load(loads: Loads, counted: str) -> tuple[Target, dict[str, Boundary]]:
    tree = files() | {"trl/trainer/orpo_config.py": CONFIG}
    tree["trl/trainer/orpo_trainer.py"] = TRAINER.replace("{counted}", counted)
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": TRANSFORMERS})
    bound = [b for b in preferences.boundaries(target) if isinstance(b, Boundary) and b.path == ORPO]
    return target, {setting: b for b in bound for setting in b.settings}


def test_answers_and_reads_back(loads: Loads) -> None:
    """Both forms bind, and every column survives the round trip."""
    target, bound = _load(loads, "ids[:, 1:] != 0")
    assert set(bound) == set(SETTINGS)
    check_calls(target, bound.values())


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(("counted", "whole"), [("ids[:, 1:] != 0", True), ("mask", False)])
def test_likelihood(loads: Loads, counted: str, setting: str, whole: bool) -> None:
    """The likelihood of the response alone is another loss, where a prompt has predicted tokens."""
    target, bound = _load(loads, counted)
    check_verdict(REF001, bound[setting], setting, target, found=SETTINGS[setting] and not whole)
