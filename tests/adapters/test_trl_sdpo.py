"""TRL's SDPO with the policy loss alone, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_async_specimen import files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, sdpo
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.knob_without_effect import LAW as CFG001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

TRAINER = """
    import torch

    def selective_log_softmax(logits, ids):
        return torch.gather(logits.log_softmax(-1), -1, ids.unsqueeze(-1)).squeeze(-1)

    class SDPOTrainer:
        def _compute_policy_loss(self, inputs, logits):
            mask, old = inputs["completion_mask"], inputs["old_per_token_logps"]
            ratio = (selective_log_softmax(logits, inputs["completion_ids"]) - old).exp()
            clipped = ratio.clamp(1 - self.epsilon_low, 1 + HIGH)
            advantage = inputs["advantages"].unsqueeze(1)
            tokens = -torch.min(ratio * advantage, clipped * advantage) * mask
            if self.loss_type == "grpo":
                loss = (tokens.sum(1) / mask.sum(1).clamp(min=1)).mean()
            elif self.loss_type == "dr_grpo":
                loss = tokens.sum() / (len(mask) * self.max_completion_length)
            else:
                loss = tokens.sum() / (COUNT)
            self._metrics["train"]["self_distillation/policy_loss"].append(loss.item())
            return loss

        def compute_loss(self, model, inputs):
            width = inputs["completion_ids"].shape[1]
            logits = model(input_ids=IDS, logits_to_keep=width + 1).logits[:, :-1]
            return self._compute_policy_loss(inputs, logits / self.temperature) / STEPS
"""

IDS = 'inputs["completion_ids"]'
COUNT = "mask.sum().clamp(min=1)"
STEPS = "self.current_gradient_accumulation_steps"


def _bound(
    loads: Loads, high: str = "self.epsilon_high", steps: str = STEPS, ids: str = IDS, count: str = COUNT
) -> tuple[Target, dict[str, Boundary]]:
    tree = files()
    source = TRAINER.replace("HIGH", high).replace("STEPS", steps).replace("IDS", ids).replace("COUNT", count)
    tree["trl/experimental/sdpo/sdpo_trainer.py"] = source
    target = loads(FRAMEWORK, tree, overlay())
    return target, by_setting(sdpo.boundaries(target))


def test_sound(loads: Loads) -> None:
    """Means of rows, and sums, are sound; a mean over the tokens of a micro-batch is not one over all of them."""
    target, boundaries = _bound(loads)
    assert list(boundaries) == ["grpo", "dapo", "bnpo", "dr_grpo"]
    check_calls(target, boundaries.values())
    for setting, boundary in boundaries.items():
        for law in (REF001, SPL001):
            check_verdict(law, boundary, setting, target, found=law is SPL001 and setting == "dapo")


def test_tokens_of_all_micro_batches(loads: Loads) -> None:
    """A mean over the tokens of all micro-batches is sound."""
    count = 'inputs["num_items_in_batch"] / self.accelerator.num_processes / self.args.steps_per_generation'
    target, boundaries = _bound(loads, count=count)
    for law in (REF001, SPL001):
        check_verdict(law, boundaries["dapo"], "dapo", target, found=False)


@pytest.mark.parametrize(
    ("law", "choices"),
    [
        (SPL001, {"steps": "1"}),
        (REF001, {"ids": 'inputs["completion_mask"]'}),
        (REF001, {"high": "self.epsilon_low"}),
        (CFG001, {"high": "0.28"}),
    ],
)
def test_found(loads: Loads, law: Law, choices: dict[str, str]) -> None:
    """Losses added up, a model that gets a mask as tokens, a range with one bound, a bound that is not read."""
    target, boundaries = _bound(loads, **choices)
    check_verdict(law, boundaries["grpo"], "grpo", target, found=True)
