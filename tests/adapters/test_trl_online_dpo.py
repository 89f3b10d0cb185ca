"""TRL's online DPO, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict, judged_at
from adapters.kit.round_trip import check_calls
from adapters.trl_pairs_specimen import TRANSFORMERS, filled
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, online_dpo
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

CONFIG = """
    from dataclasses import dataclass

    @dataclass
    class OnlineDPOConfig:
        output_dir: str = ""
        max_length: int = 512
        beta: float = 0.1
        gradient_accumulation_steps: int = 1
"""

TRAINER = """
    from types import SimpleNamespace

    import torch
    from torch.nn.functional import logsigmoid

    class OnlineDPOTrainer:
        def __init__(self, model, ref_model, reward_funcs, args, train_dataset, processing_class):
            self.model, self.ref_model, self.reward_funcs, self.args = model, ref_model, [reward_funcs], args
            self.accelerator, self.beta = SimpleNamespace(gradient_accumulation_steps=1), args.beta
            names = "objective/kl", "objective/entropy", "objective/non_score_reward"
            self.stats = {name: [] for name in names}

        def _calculate_rewards_from_functions(self, prompts, completions):
            return torch.tensor(self.reward_funcs[0](prompts, completions))

        def _forward(self, model, prompt_ids, completion_ids):
            logits = model(torch.cat([prompt_ids, completion_ids], 1)).logits[:, prompt_ids.shape[1] - 1 : -1]
            return logits.log_softmax(-1).gather(2, completion_ids.unsqueeze(2)).squeeze(2)

        def training_step(self, model, inputs, num_items_in_batch=None):
            pairs = len(inputs["prompt"])
            {sampled} = self._generate(model, inputs["prompt"], None)
            logps = self._forward(model, prompt_ids, ids) * mask
            with torch.no_grad():
                reference = self._forward(self.ref_model, prompt_ids, ids){masked}
            rewards = self._calculate_rewards_from_functions(2 * inputs["prompt"], ids)
            first = rewards[:pairs] {better} rewards[pairs:]
            sums = (logps - reference * mask).sum(1)
            margins = torch.where(first, sums[:pairs] - sums[pairs:], sums[pairs:] - sums[:pairs])
            kl = (logps - reference).detach()
            self.stats["objective/kl"].append(kl.sum(1).mean().item())
            self.stats["objective/entropy"].append(-logps.sum(1).mean().item())
            self.stats["objective/non_score_reward"].append(-self.beta * kl.sum(1).mean().item())
            loss = -logsigmoid(self.beta * margins).mean()
            self.accelerator.backward(loss / {steps})
"""

SOUND = {
    "sampled": "prompt_ids, _, ids, mask, _",
    "masked": " * mask",
    "better": ">=",
    "steps": "self.current_gradient_accumulation_steps",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    source = filled(TRAINER, {**SOUND, **broken})
    tree = {"trl/__init__.py": "", "trl/trainer/online_dpo_config.py": CONFIG}
    target = loads(
        FRAMEWORK,
        {**tree, "trl/trainer/online_dpo_trainer.py": source},
        {**overlay(), "transformers.py": TRANSFORMERS},
    )
    return target, by_setting(online_dpo.boundaries(target))


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert set(boundaries) == {"default", "logged"}
    check_calls(target, boundaries.values())


@pytest.mark.parametrize(("law", "setting"), [(REF001, "default"), (SPL001, "default"), (MET001, "logged")])
@pytest.mark.parametrize("sampled", ["prompt_ids, _, ids, mask, _", "prompt_ids, _, ids, mask"])
def test_sound_step(loads: Loads, law: Law, setting: str, sampled: str) -> None:
    """Of a release that samples inputs of images, too, and of one that does not."""
    target, boundaries = _bound(loads, sampled=sampled)
    judgement = judged_at(law, boundaries[setting], setting, target)
    assert (judgement.found, judgement.tried > 0) == (None, True)


@pytest.mark.parametrize(
    ("law", "setting", "broken"),
    [
        (REF001, "default", {"better": "<"}),
        (SPL001, "default", {"steps": "1"}),
        (MET001, "logged", {"masked": ""}),
    ],
)
def test_faults_are_found(loads: Loads, law: Law, setting: str, broken: dict[str, str]) -> None:
    """The worse response preferred, a loss that grows with the micro-batches, a KL over padding."""
    target, boundaries = _bound(loads, **broken)
    check_verdict(law, boundaries[setting], setting, target, found=True)


def test_other_rewards_are_unbound(loads: Loads) -> None:
    source = TRAINER.replace("_calculate_rewards_from_functions", "_judged")
    target = loads(FRAMEWORK, {"trl/__init__.py": "", "trl/trainer/online_dpo_trainer.py": filled(source, SOUND)})
    (reason,) = [one.reason for one in online_dpo.boundaries(target) if isinstance(one, Unbound)]
    assert "calls neither reward functions, nor a model, nor a judge" in reason
