"""One step of AReaL's training loop, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_only
from adapters.kit.round_trip import check_calls, check_round_trip
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.training_loop import boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

TRAINER = """
    from areal.infra import is_single_controller

    class PPOTrainer:
        def train(self, workflow=None):
            for step in range(len(self.train_dataloader) * self.config.total_train_epochs):
                rollout_batch = self.actor.prepare_batch(self.train_dataloader, workflow=workflow)
                for prompt, values in zip(rollout_batch, self.critic.compute_values(rollout_batch)):
                    prompt["values"] = values
                for prompt, own in zip(rollout_batch, self.ref.compute_logp(rollout_batch)):
                    prompt["ref_logp"] = own
                for prompt, own in zip(rollout_batch, self.teacher.compute_logp(ASKED)):
                    prompt["teacher_logp"] = own
                for prompt, own in zip(rollout_batch, self.actor.compute_logp(rollout_batch)):
                    prompt["PROXIMAL"] = own
                batch = self.actor.compute_advantages(rollout_batch)
                self.actor.ppo_update(batch)
                self.critic.ppo_update(CRITIC)
                if not is_single_controller():
                    self.rollout.set_version(step + 1)
"""

SOUND = {"ASKED": "rollout_batch", "PROXIMAL": "prox_logp", "CRITIC": "batch"}


def _bound(loads: Loads, **broken: str) -> tuple[Target, Boundary]:
    source = rewritten(TRAINER, SOUND | broken)
    files = {"areal/trainer/rl_trainer.py": source, "areal/infra.py": "def is_single_controller():\n    return True"}
    target = loads(FRAMEWORK, files)
    return target, the_only(boundaries(target))


def test_answers(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


ONE_BATCH = """
    class PPOTrainer:
        def train(self, workflow=None):
            for step in range(len(self.train_dataloader) * self.config.total_train_epochs):
                batch = self.actor.prepare_batch(self.train_dataloader, workflow=workflow)
                batch["values"] = self.critic.compute_values(batch)
                if self.config.actor.should_compute_prox_logp():
                    batch["prox_logp"] = self.actor.compute_logp(batch)
                batch["ref_logp"] = self.ref.compute_logp(batch)
                self.actor.compute_advantages(batch)
                self.actor.ppo_update(UPDATED)
                self.critic.ppo_update(batch)
                if not is_single_controller():
                    self.eval_rollout.set_version(step + 1)

    def is_single_controller():
        return True
"""


@pytest.mark.parametrize(("updated", "found"), [("batch", False), ('{**batch, "prox_logp": batch["ref_logp"]}', True)])
def test_release_with_one_batch(loads: Loads, updated: str, found: bool) -> None:
    """Older trainers have one batch of all prompts, and no teacher."""
    target = loads(FRAMEWORK, {"areal/experimental/trainer/rl.py": ONE_BATCH.replace("UPDATED", updated)})
    boundary = the_only(boundaries(target))
    assert boundary.path == "areal.experimental.trainer.rl.PPOTrainer.train"
    assert "teacher_logp" not in boundary.outputs
    check_round_trip(target, boundary)
    check_verdict(PLC004, boundary, "default", target, found=found)


def test_release_without_columns_of_models(loads: Loads) -> None:
    files = {
        "areal/trainer/rl_trainer.py": "class PPOTrainer:\n    def train(self, workflow):\n        return workflow"
    }
    assert list(boundaries(loads(FRAMEWORK, files))) == []


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ({}, False),
        ({"ASKED": "rollout_batch[::-1]"}, True),
        ({"PROXIMAL": "logprobs"}, True),
        ({"CRITIC": "batch[:1] * len(batch)"}, True),
    ],
)
def test_columns_of_each_row(loads: Loads, broken: dict[str, str], found: bool) -> None:
    """Prompts in another order, recomputed log-probs in the place of the sampler's, one prompt for all."""
    target, boundary = _bound(loads, **broken)
    check_verdict(PLC004, boundary, "default", target, found=found)
