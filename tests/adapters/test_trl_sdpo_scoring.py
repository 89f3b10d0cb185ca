"""TRL's SDPO from completions to advantages, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_specimen import files, filled, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, sdpo_scoring
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001

TRAINER = """
    import torch

    class SDPOTrainer:
        def _prepare_training_batch(self, inputs):
            batch = self.sample_rollouts(inputs)
            rewards = self.accelerator.gather(torch.tensor(self.reward_funcs[0](prompts=inputs)))
            groups = rewards.view(-1, self.num_generations)
            centered = groups - groups.mean(1, keepdim=True)
            if self.scale_rewards == "batch":
                centered = centered / (rewards.std() + 1e-4)
            elif self.scale_rewards != "none":
                centered = centered / (groups.std(1, keepdim=True) + {guard})
            self._record_reward_diagnostics(rewards)
            self._record_completion_metrics(batch)
            start = {rank} * len(inputs)
            return {**batch, "advantages": centered.flatten()[start : start + len(inputs)]}

        def _record_reward_diagnostics(self, rewards):
            self._metrics["train"]["self_distillation/reward_mean"].append(rewards.mean().item())

        def _record_completion_metrics(self, batch):
            lengths = self.accelerator.gather({lengths})
            self._metrics["train"]["completions/mean_length"].append(lengths.float().mean().item())
"""

SOUND = {
    "guard": "1e-4",
    "rank": "self.accelerator.process_index",
    "lengths": 'batch["raw_completion_lengths"]',
}


def _bound(loads: Loads, **choices: str) -> tuple[Target, dict[str, Boundary]]:
    source = filled(TRAINER, SOUND | choices)
    folder = "trl/experimental/sdpo"
    target = loads(FRAMEWORK, {**files(), f"{folder}/sdpo_trainer.py": source}, overlay())
    return target, by_setting(sdpo_scoring.boundaries(target))


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Each way of scaling binds, and every column survives the round trip."""
    target, boundaries = _bound(loads)
    assert list(boundaries) == ["default", "no scaling", "batch scaling", "logged"]
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "setting", "choices"),
    [
        (REF001, "default", {"guard": "1e-1"}),
        (REF001, "no scaling", {"rank": "0"}),
        (MET001, "logged", {"lengths": 'batch["completion_mask"].shape[1] * torch.ones(len(batch["prompt_ids"]))'}),
    ],
)
def test_faults(loads: Loads, law: Law, setting: str, choices: dict[str, str], sound: bool) -> None:
    """Another guard of the division, rows of another rank, lengths with padding."""
    target, boundaries = _bound(loads, **({} if sound else choices))
    check_verdict(law, boundaries[setting], setting, target, found=not sound)
