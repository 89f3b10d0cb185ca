"""TRL's reward model, on a specimen of its call shapes in words of our own."""

import sys
from types import SimpleNamespace

import pytest

from adapters.checks import Loads, by_setting, judged_at, rewritten
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import BASE, TRANSFORMERS
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, reward_model
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class RewardConfig:
        output_dir: str = ""
        max_length: object = 1024
        center_rewards_coefficient: object = None
        gradient_accumulation_steps: int = 1
"""

TRAINER = """
    from collections import defaultdict

    import torch
    from torch.nn.functional import logsigmoid
    from torch.nn.utils.rnn import pad_sequence
    from trl.trainer.base import Trainer

    def collate(pairs):
        ids = [torch.tensor(pair[side]) for side in ("chosen_ids", "rejected_ids") for pair in pairs]
        real = [torch.ones_like(own) for own in ids]
        return {
            "input_ids": pad_sequence(ids, batch_first=True),
            "attention_mask": pad_sequence(real, batch_first=True),
        }

    class RewardTrainer(Trainer):
        def __init__(self, model, args, train_dataset, processing_class):
            super().__init__(model, args, train_dataset, processing_class, None)
            self.data_collator, self._metrics = collate, defaultdict(lambda: defaultdict(list))

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            chosen, rejected = PARTS
            loss = -logsigmoid(chosen - rejected).REDUCED()
            weight = self.args.center_rewards_coefficient
            if weight is not None:
                loss = loss + weight * ((chosen CENTERED rejected) ** 2).mean()
            self._metrics["train"]["accuracy"].append((chosen RANKED rejected).float().mean().item())
            self._metrics["train"]["margin"].append((chosen - rejected).mean().item())
            return loss
"""

SOUND = {
    "PARTS": "model(**inputs).logits.squeeze(-1).chunk(2)",
    "REDUCED": "mean",
    "CENTERED": "+",
    "RANKED": ">",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = rewritten(TRAINER, SOUND | broken)
    tree = {"trl/__init__.py": "", "trl/trainer/base.py": BASE, "trl/trainer/reward_config.py": CONFIG}
    target = loads(
        FRAMEWORK,
        {**tree, "trl/trainer/reward_trainer.py": source},
        {**overlay(), "transformers.py": TRANSFORMERS},
    )
    return target, by_setting(reward_model.boundaries(target))


def _sound(loads: Loads, law: Law, setting: str, **broken: str) -> bool:
    target, boundaries = _bound(loads, **broken)
    judgement = judged_at(law, boundaries[setting], setting, target)
    assert judgement.tried > 0
    return judgement.found is None


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert set(boundaries) == {"default", "centered"}
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("law", [REF001, SPL001])
def test_sound_step(loads: Loads, law: Law) -> None:
    assert all(_sound(loads, law, setting) for setting in ("default", "centered"))


@pytest.mark.parametrize(
    ("law", "setting", "broken"),
    [
        (REF001, "default", {"PARTS": "model(**inputs).logits.squeeze(-1).unflatten(0, (-1, 2)).unbind(1)"}),
        (REF001, "centered", {"CENTERED": "-"}),
        (SPL001, "default", {"REDUCED": "sum"}),
        (REF001, "default", {"RANKED": "<"}),
    ],
)
def test_faults_are_found(loads: Loads, law: Law, setting: str, broken: dict[str, str]) -> None:
    """Pairs cut across, scores centered by their difference, a sum that grows with the pairs, the other accuracy."""
    assert not _sound(loads, law, setting, **broken)


class _Plain:
    def forward(self, input_ids: object) -> None:
        """Take no other inputs."""


class _Open:
    def forward(self, input_ids: object, **more: object) -> None:
        """Take any inputs."""


@pytest.mark.parametrize(
    ("scorer", "accepts", "expected"),
    [(_Plain, True, False), (_Open, True, True), (_Open, False, False), (None, True, True)],
)
def test_the_loss_is_scaled_as_with_a_scorer(
    monkeypatch: pytest.MonkeyPatch, *, scorer: type | None, accepts: bool, expected: bool
) -> None:
    """The audit's language model accepts more inputs than a sequence classifier of early releases."""
    names = {} if scorer is None else {"LlamaForSequenceClassification": scorer}
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(**names))
    trainer = SimpleNamespace(model_accepts_loss_kwargs=accepts)
    assert reward_model.scaled_as_scorer(trainer).model_accepts_loss_kwargs is expected
