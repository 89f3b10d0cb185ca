"""The weights that sample during a step of verl's one-step-off trainer, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.test_training_run import DATASET
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, rollout_versions
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

SEPARATE = """
    class SeparateRayPPOTrainer:
        def _fit_compute_log_prob(self, batch):
            return batch
"""

ONE_STEP = """
    import asyncio

    import numpy as np
    from verl.protocol import DataProto
    from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer

    class OneStepOffRayTrainer(SeparateRayPPOTrainer):
        def fit(self):
            return DataProto

        async def _async_gen_next_batch(self, batches):
            _, columns = next(batches)
            labels = {"raw_prompt": np.repeat(columns["raw_prompt"], 2)}
            asked = DataProto.from_dict({"dummy_tensor": columns["dummy_tensor"]}, labels)
            return await self.async_rollout_manager.generate_sequences(asked)

        def send(self):
            self.checkpoint_manager.update_weights(self.global_steps)

        async def fit_step(self, future, batches):
            batch = await future
            BEFORE
            following = asyncio.create_task(self._async_gen_next_batch(batches))
            await asyncio.sleep(0)
            self.actor_rollout_wg.update_actor(batch)
            MEANWHILE
            return following
"""

SEND = "self.send()"


def _bound(loads: Loads, before: str = SEND, meanwhile: str = "pass") -> tuple[Target, Boundary]:
    tree = files() | {
        "verl/experimental/separation/ray_trainer.py": SEPARATE,
        "verl/experimental/one_step_off_policy/ray_trainer.py": ONE_STEP.replace("BEFORE", before).replace(
            "MEANWHILE", meanwhile
        ),
        "verl/utils/dataset/rl_dataset.py": DATASET,
        "verl/trainer/config/ppo_trainer.yaml": '{"data": {}, "algorithm": {}, "actor_rollout_ref": {"rollout": {}}}',
    }
    target = loads(FRAMEWORK, tree, {"omegaconf.py": OMEGACONF})
    return target, the_only(rollout_versions.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("choices", "sound"),
    [
        ({}, True),
        ({"meanwhile": SEND}, False),  # the weights change while they sample
        ({"before": "pass"}, False),  # the weights are never sent
        ({"before": "pass", "meanwhile": SEND}, False),
    ],
)
def test_weights_of_the_next_batch(loads: Loads, choices: dict[str, str], sound: bool) -> None:
    """They are sent before the batch is sampled, and not before it ends."""
    target, boundary = _bound(loads, **choices)
    check_verdict(PLC004, boundary, "the next batch", target, found=not sound)
