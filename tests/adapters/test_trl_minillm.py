"""TRL's MiniLLM, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_async_specimen import files
from adapters.trl_specimen import CONFIG, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, minillm
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.padding_shifts_signal import LAW as PAD001

FIELDS = """        gamma: float = 0.0
        length_normalization: bool = True
"""

TRAINER = """
    import torch
    from trl.trainer.grpo_trainer import GRPOTrainer

    class MiniLLMTrainer(GRPOTrainer):
        def __init__(self, model, teacher_model, reward_funcs, args, train_dataset, processing_class):
            super().__init__(model, reward_funcs, args, train_dataset, processing_class)
            self.teacher_model = teacher_model

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
            attended = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
            width = inputs["completion_ids"].shape[1]
            self.teacher_model.eval()
            student, teacher = (
                m(input_ids=ids, attention_mask=attended).logits[:, -width - 1 : -1].log_softmax(-1)
                for m in (model, self.teacher_model)
            )
            trained = MASK
            gap = (teacher - student).gather(2, inputs["completion_ids"].unsqueeze(2)).squeeze(2).detach() * trained
            later = torch.zeros_like(gap)
            for place in range(width - 1, -1, -1):
                later[:, place] = gap[:, place] + self.args.gamma * (later[:, place + 1] if place + 1 < width else 0)
            weight = inputs["advantages"].unsqueeze(1) + later
            own, _ = self._get_per_token_logps_and_entropies(model, ids, attended, width)
            tokens = -(own - own.detach()).exp() * weight * inputs["completion_mask"]
            loss = (tokens.sum(1) / inputs["completion_mask"].sum(1)).mean()
            kl = (student.exp() * (student - teacher)).sum(2)
            return loss + (kl * trained).sum() / trained.sum()
"""

SOUND = 'inputs["completion_mask"]'


def _bound(loads: Loads, mask: str = SOUND) -> tuple[Target, dict[str, Boundary]]:
    tree = files()
    tree["trl/experimental/minillm/minillm_config.py"] = CONFIG.format(name="MiniLLMConfig").rstrip() + "\n" + FIELDS
    tree["trl/experimental/minillm/minillm_trainer.py"] = TRAINER.replace("MASK", mask)
    target = loads(FRAMEWORK, tree, overlay())
    return target, by_setting(minillm.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """The reverse KL of a token alone, and with those after it."""
    target, boundaries = _bound(loads)
    assert list(boundaries) == list(minillm.SETTINGS)
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("setting", list(minillm.SETTINGS))
@pytest.mark.parametrize(("mask", "sound"), [(SOUND, True), ('inputs["completion_ids"] != -100', False)])
def test_padding(loads: Loads, setting: str, mask: str, sound: bool) -> None:
    """Padding is no part of the divergence: ids without labels do not mark it."""
    target, boundaries = _bound(loads, mask)
    check_verdict(PAD001, boundaries[setting], setting, target, found=not sound)
