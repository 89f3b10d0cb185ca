"""TRL's distillation on buffered completions, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict
from adapters.kit.round_trip import check_calls
from adapters.trl_inline_specimen import overlay
from adapters.trl_pairs_specimen import filled
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, buffered_rollouts
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.columns_out_of_step import LAW as DAT001

TRAINER = """
    import torch

    class GOLDTrainer:
        def _generate_on_policy_for_slices(self, slices, indices):
            (place,) = indices
            limit, most = self.args.max_length, self.generation_config.max_new_tokens
            kept = slice(-(limit - most) if limit else None, None)
            masked = zip(slices[place]["prompts"], slices[place]["prompt_attention_mask"].bool())
            prompts = [ids[own].tolist() for ids, own in masked]
            sent = {sent}
            _, rows, _, _ = self.vllm_generation.generate(prompts=sent, images=None, num_generations=1)
            prompts = [ids[kept] for ids in prompts]
            width = max(map(len, prompts))
            ids, mask, labels = [], [], []
            for prompt, own in zip(prompts, {rows}):
                left, right = [0] * (width - len(prompt)), [0] * (most - len(own))
                ids.append(left + prompt + own + right)
                mask.append(left + [1] * len(prompt + own) + right)
                labels.append([-100] * width + own + [-100] * len(right))
            columns = {"input_ids": ids, "attention_mask": mask, "labels": labels}
            self._buffered_inputs[place] = {name: torch.tensor(column) for name, column in columns.items()}
"""

SOUND = {"sent": "[ids[kept] for ids in prompts]", "rows": "rows"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    tree = {f"trl/{place}__init__.py": "" for place in ("", "experimental/", "experimental/gold/")}
    source = filled(TRAINER, {**SOUND, **broken})
    target = loads(FRAMEWORK, {**tree, "trl/experimental/gold/gold_trainer.py": source}, overlay())
    return target, by_setting(buffered_rollouts.boundaries(target))


def test_all_boundaries_answer(loads: Loads) -> None:
    """Prompts that fit, and prompts that the limit cuts."""
    target, boundaries = _bound(loads)
    assert set(boundaries) == {"prompts of any length", "prompts, truncated"}
    check_calls(target, boundaries.values())


CASES = [("prompts, truncated", {"sent": "prompts"}), ("prompts of any length", {"rows": "rows[::-1]"})]


@pytest.mark.parametrize(("setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    """A whole prompt is sampled from and a cut one trains; completions of other prompts."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(DAT001, boundaries[setting], setting, target, found=found)
