"""TRL's DPPO, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict, rewritten
from adapters.kit.round_trip import check_calls
from adapters.trl_async_specimen import files
from adapters.trl_specimen import CONFIG, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, dppo
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.gradient_off_mask import LAW as PLC002
from rl_sentinel.laws.knob_without_effect import LAW as CFG001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

FIELDS = '        divergence_type: str = "binary_tv"\n'

TRAINER = """
    import torch
    from trl.trainer.grpo_trainer import GRPOTrainer

    class DPPOTrainer(GRPOTrainer):
        def _compute_loss(self, model, inputs):
            mask = MASK
            now, _ = self._get_per_token_logps_and_entropies(model, inputs["prompt_ids"], None, mask.shape[1])
            old, weight = inputs["sampling_per_token_logps"], inputs["advantages"].unsqueeze(1)
            one, other = now.exp(), old.exp()
            away = (one - other).abs()
            if self.args.divergence_type == "binary_kl":
                rest = ((1 - other).clamp(min=1e-7) / (1 - one).clamp(min=1e-7)).log()
                away = other * (old - now) + (1 - other) * rest
            up, down = (away > HIGH) & (one > other), (away > self.args.epsilon) & (one < other)
            kept = torch.where(weight > 0, ~up, ~down) * mask
            tokens = -weight * (now - old).exp().detach() * kept * now
            if self.beta:
                gap = inputs["ref_per_token_logps"] - now
                tokens = tokens + self.beta * (gap.exp() - gap - 1)
            return (tokens * mask).sum() / COUNT
"""

SOUND = {
    "MASK": 'inputs["completion_mask"] * inputs["tool_mask"]',
    "HIGH": "self.args.epsilon_high",
    "COUNT": 'inputs["num_items_in_batch"]',
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = rewritten(TRAINER, SOUND | broken)
    tree = files()
    tree["trl/experimental/dppo/dppo_config.py"] = CONFIG.format(name="DPPOConfig").rstrip() + "\n" + FIELDS
    tree["trl/experimental/dppo/dppo_trainer.py"] = source
    target = loads(FRAMEWORK, tree, overlay())
    return target, by_setting(dppo.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """Each divergence of two outcomes, and the KL term."""
    target, boundaries = _bound(loads)
    assert list(boundaries) == list(dppo.SETTINGS)
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "setting", "broken"),
    [
        (PLC002, "default", {"MASK": 'inputs["completion_mask"]'}),
        (SPL001, "default", {"COUNT": "mask.sum()"}),
        (CFG001, "default", {"HIGH": "self.args.epsilon"}),
        (PLC002, "KL", {"MASK": 'inputs["completion_mask"]'}),
    ],
)
def test_faults(loads: Loads, law: Law, setting: str, broken: dict[str, str], *, sound: bool) -> None:
    """Tokens of a tool, a mean of means, and a threshold that is not read."""
    target, boundaries = _bound(loads, **({} if sound else broken))
    check_verdict(law, boundaries[setting], setting, target, found=not sound)
