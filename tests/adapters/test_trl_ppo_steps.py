"""A whole step of TRL's earlier PPO, on a specimen of its call shapes in words of our own."""

from dataclasses import replace

import pytest

from adapters.checks import Loads, answering, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.trl_pairs_specimen import TRANSFORMERS, files
from adapters.trl_specimen import overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, ppo_steps
from rl_sentinel.adapters.trl.ppo import CONFIG, PPO
from rl_sentinel.adapters.trl.ppo_updates import is_white, returns_are_scores
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

FIELDS = """
        batch_size: int = 4
        mini_batch_size: int = 1
        gradient_accumulation_steps: int = 1
        ppo_epochs: int = 4
        gamma: float = 1.0
        lam: float = 0.95
        cliprange: float = 0.2
        cliprange_value: float = 0.2
        vf_coef: float = 0.1
"""

STEP = """
        def step(self, queries, responses, scores):
            rows = [torch.cat(pair) for pair in zip(queries, responses)]
            items = [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in rows]
            model_inputs = self.data_collator(items).to(self.current_device)
            with torch.no_grad():
                old, _, values, masks = self.batched_forward_pass(self.model, queries, responses, model_inputs)
                ref, _, _, _ = self.batched_forward_pass(self.ref_model, queries, responses, model_inputs)
                rewards, _, _ = self.compute_rewards(scores, old, ref, masks)
                for row, mask, score in zip(rewards, masks, scores):
                    row[mask.nonzero()[{last}]] += score
                values, advantages, returns = self.compute_advantages(values, rewards, masks)
            size, logged = self.config.mini_batch_size, []
            for start in range(0, len(queries), size):
                part = slice(start, start + size)
                with self.accelerator.accumulate(self.model):
                    inputs = {name: column[part] for name, column in model_inputs.items()}
                    new, _, guess, _ = self.batched_forward_pass(self.model, queries[part], responses[part], inputs)
                    policy, value, stats = self.loss(
                        old[part], {anchor}[part], None, guess, new, masks[part], advantages[part], returns[part]
                    )
                    {before}
                    self.accelerator.backward(policy + self.config.vf_coef * value)
                    self.optimizer.step()
                    {after}
                    logged.append(stats)
            return {f"ppo/{name}": sum(stats[name] for stats in logged).item() / {parts} for name in logged[0]}
"""

#: Place in the step -> what a sound one has there.
SOUND = {
    "last": "-1",
    "anchor": "values",
    "before": "",
    "after": "self.optimizer.zero_grad()",
    "parts": "len(logged)",
}

BATCH_ENCODING = """
    class BatchEncoding(dict):
        def to(self, device):
            return self
"""


def _load(loads: Loads, **choices: str) -> Target:
    tree, step = files(), STEP
    for place, text in (SOUND | choices).items():
        step = step.replace("{" + place + "}", text)
    tree["trl/trainer/ppo_config.py"] += FIELDS
    tree["trl/trainer/ppo_trainer.py"] += step
    return loads(FRAMEWORK, tree, {**overlay(), "transformers.py": TRANSFORMERS + BATCH_ENCODING})


def _bound(target: Target) -> dict[str, Boundary]:
    every = [one for one in ppo_steps.boundaries(target, PPO, CONFIG) if isinstance(one, Boundary)]
    return {setting: one for one in every for setting in one.settings}


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """Both losses and the accumulated one bind, and every column survives the round trip."""
    target = _load(loads)
    boundaries = _bound(target)
    assert set(boundaries) == {"policy", "value", "accumulated"}
    assert answering({(name, name): one for name, one in boundaries.items()}, target) == []
    numbers = (is_white, returns_are_scores)  # cases of a round trip need not have numbers that a step could compute
    shapes = {name: tuple(n for n in one.requires if n not in numbers) for name, one in boundaries.items()}
    check_round_trips(target, [replace(one, requires=shapes[name]) for name, one in boundaries.items()])


def test_a_release_without_accumulation(loads: Loads) -> None:
    """A configuration without the field has no step over several mini-batches, and the others hold."""
    tree = files()
    tree["trl/trainer/ppo_config.py"] += FIELDS.replace("gradient_accumulation_steps", "other")
    step = STEP
    for place, text in SOUND.items():
        step = step.replace("{" + place + "}", text)
    tree["trl/trainer/ppo_trainer.py"] += step
    target = loads(FRAMEWORK, tree, {**overlay(), "transformers.py": TRANSFORMERS + BATCH_ENCODING})
    boundaries = _bound(target)
    assert set(boundaries) == {"policy", "value"}
    check_verdict(REF001, boundaries["policy"], "policy", target, found=False)


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize(
    ("law", "setting", "choices"),
    [
        (SPL001, "accumulated", {"before": "self.optimizer.zero_grad()", "after": "pass"}),
        (SPL001, "accumulated", {"after": "self.optimizer.zero_grad(); self.accelerator.pending.clear()"}),
        (REF001, "value", {"last": "0"}),
        (REF001, "value", {"anchor": "returns"}),
        (MET001, "value", {"parts": "2"}),
        (REF001, "policy", {"before": "policy = -policy"}),
    ],
)
def test_faults(loads: Loads, law: Law, setting: str, choices: dict[str, str], *, sound: bool) -> None:
    """Gradients that are cleared, a score at the wrong token, other old values, another mean, and a sign."""
    target = _load(loads, **({} if sound else choices))
    check_verdict(law, _bound(target)[setting], setting, target, found=not sound)
