"""TRL's self-distillation, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_specimen import files, filled, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, self_distillation
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

TRAINER = """
    import torch

    class SDFTTrainer:
        def _compute_self_distillation_loss(self, student, teacher, mask):
            alpha, kl = self.args.distillation_alpha, lambda one, other: (one.exp() * (one - other)).sum(-1)
            if alpha in (0, 1):
                tokens = kl(student, teacher) if alpha else kl(teacher, student)
            else:
                mixed = ({share} * teacher.exp() + (1 - {share}) * student.exp()).log()
                tokens = alpha * kl(teacher, mixed) + (1 - alpha) * kl(student, mixed)
            rows = (tokens * {mask}).sum(1) / mask.sum(1).clamp(min=1)
            self._metrics["train"]["self_distillation/distillation_loss"].append(rows.mean().item())
            return {mean}

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            width = inputs["completion_ids"].shape[1]
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
            mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
            student = model(input_ids=ids, attention_mask=mask, logits_to_keep=width + 1)
            with torch.no_grad(), self._get_teacher_context_for_self_distillation():
                teacher = self.teacher_model(
                    input_ids=inputs["teacher_input_ids"], attention_mask=inputs["teacher_attention_mask"]
                )
            one, two = student.logits[:, :-1].log_softmax(-1), teacher.logits[:, {shift}][:, -width:].log_softmax(-1)
            return self._compute_self_distillation_loss(one, two, inputs["completion_mask"]) / {steps}
"""

SOUND = {
    "share": "alpha",
    "mask": "mask",
    "shift": ":-1",
    "steps": "self.current_gradient_accumulation_steps",
    "mean": "rows.mean()",
}

#: The mean in spring 2026, when it depends on the type of the loss.
TYPED = """{
                "grpo": rows.mean(),
                "other": None,
            }[self.loss_type if self.args.full_logit_distillation and not self.args.distillation_topk else "other"]"""


def _bound(loads: Loads, **choices: str) -> tuple[Target, dict[str, Boundary]]:
    source = filled(TRAINER, SOUND | choices)
    tree = {**files(), "trl/experimental/sdft/sdft_trainer.py": source}
    target = loads(FRAMEWORK, tree, overlay())
    return target, by_setting(self_distillation.boundaries(target))


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Each mixture binds, and every column survives the round trip."""
    target, boundaries = _bound(loads)
    assert list(boundaries) == list(self_distillation.ALPHAS)
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "setting", "choices"),
    [
        (REF001, "full logits, alpha 0.1", {"share": "(1 - alpha)"}),
        (REF001, "full logits, alpha 0", {"shift": "1:"}),
        (REF001, "full logits", {"mask": "1"}),
        (SPL001, "full logits", {"steps": "1"}),
    ],
)
def test_faults(loads: Loads, law: Law, setting: str, choices: dict[str, str], sound: bool) -> None:
    """The student's share for the teacher's, a teacher's logits of the next token, all tokens, losses added up."""
    target, boundaries = _bound(loads, **({} if sound else choices))
    check_verdict(law, boundaries[setting], setting, target, found=not sound)


def test_releases_with_loss_types(loads: Loads) -> None:
    """The loss is that of ``loss_type=grpo``, and *when* names it."""
    target, boundaries = _bound(loads, mean=TYPED)
    assert boundaries["full logits"].reach.endswith("loss_type=grpo")
    check_verdict(REF001, boundaries["full logits"], "full logits", target, found=False)
