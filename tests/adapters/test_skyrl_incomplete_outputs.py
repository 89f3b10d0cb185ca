"""SkyRL's generator outputs that lack a part, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, by_setting, judged_at, rewritten
from rl_sentinel.adapters.skyrl import FRAMEWORK, incomplete_outputs
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

CONFIG = """
    from types import SimpleNamespace

    def SkyRLTrainConfig():
        trainer = SimpleNamespace(train_batch_size=8, policy_mini_batch_size=8, critic_mini_batch_size=8)
        generator = SimpleNamespace(n_samples_per_prompt=5, step_wise_trajectories=False)
        return SimpleNamespace(trainer=trainer, generator=generator)
"""

BASE = """
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class TrajectoryID:
        instance_id: str
        repetition_id: int

    class GeneratorOutput(dict):
        rollout_logprobs: list
"""

TRAINER = """
    import torch

    COLUMNS = ("loss_masks", "rollout_logprobs")

    class RayPPOTrainer:
        async def generate(self, prompts):
            output = await self.generator.generate(prompts)
            if SPARED:
                return output
            for name in CHECKED:
                for tokens, column in zip(output["response_ids"], output[name]):
                    assert len(tokens) == len(column), name
            return output

        def postprocess_generator_output(self, generator_output, uids):
            return generator_output, uids

        def convert_to_training_input(self, generator_output, uids):
            width = max(map(len, generator_output["response_ids"]))
            padded = {name: [[0] * (width - len(r)) + list(r) for r in generator_output[name]] for name in COLUMNS}
            paid = [r if isinstance(r, list) else [r] for r in generator_output["rewards"]]
            paid = [[0.0] * (width - len(r)) + r for r in paid]
            return {"rewards": torch.tensor(paid), "loss_mask": torch.tensor(padded["loss_masks"])}
"""

GENERATORS = """
    def concatenate_generator_outputs(generator_outputs):
        sampled = [one["rollout_logprobs"] for one in generator_outputs]
        if MIXED:
            raise ValueError("some outputs have log-probs, others have none")
        names = ("response_ids", "rewards")
        merged = {name: sum((one[name] for one in generator_outputs), []) for name in names}
        return {**merged, "rollout_logprobs": None if sampled[0] is None else sum((s or [] for s in sampled), [])}
"""

REASON = "a row that lacks a part must be refused, or must not train"

SOUND = {"CHECKED": "COLUMNS", "SPARED": "False", "MIXED": "None in sampled"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    files = {
        "skyrl/train/config.py": CONFIG,
        "skyrl/train/generators/base.py": BASE,
        "skyrl/train/trainer.py": TRAINER,
        "skyrl/train/generators/utils.py": GENERATORS,
    }
    files = {path: rewritten(source, SOUND | broken) for path, source in files.items()}
    target = loads(FRAMEWORK, files)
    return target, by_setting(incomplete_outputs.boundaries(target))


def test_sound(loads: Loads) -> None:
    """Every boundary answers, and refuses what lacks a part."""
    target, found = _bound(loads)
    assert list(found) == [*incomplete_outputs.SHORT, "a prompt without log-probs"]
    assert answering({(name, name): one for name, one in found.items()}, target) == []
    for name, boundary in found.items():
        judgement = judged_at(DAT001, boundary, name, target)
        assert judgement.tried > 0
        assert judgement.found is None, name


@pytest.mark.parametrize(
    ("setting", "broken", "reason"),
    [
        ("log-prob missing", {"CHECKED": "COLUMNS[:1]"}, REASON),
        ("mask entry missing", {"CHECKED": "COLUMNS[1:]"}, REASON),
        ("log-prob missing, step-wise", {"SPARED": "self.cfg.generator.step_wise_trajectories"}, REASON),
        ("a prompt without log-probs", {"MIXED": "False"}, "all columns of a row must belong to one sample"),
    ],
)
def test_broken(loads: Loads, setting: str, broken: dict[str, str], reason: str) -> None:
    """A column whose length is not compared, and outputs that are merged although some have no log-probs."""
    target, found = _bound(loads, **broken)
    judgement = judged_at(DAT001, found[setting], setting, target)
    assert judgement.found is not None
    assert judgement.found.expectation.sentence().endswith(f", expected 0: {reason}")
