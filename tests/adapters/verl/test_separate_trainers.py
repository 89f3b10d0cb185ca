"""A step of verl's trainers on GPUs of their own, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.test_training_run import DATASET
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, separate_trainers
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.better_response_ranked_below import LAW as RNK001
from rl_sentinel.laws.group_leaks_into_group import LAW as GRP001

SEPARATE = """
    import numpy as np
    from verl.protocol import DataProto
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer, compute_advantage

    def prompts(columns):
        return DataProto.from_dict({"dummy_tensor": columns["dummy_tensor"]}, {"raw_prompt": columns["raw_prompt"]})

    def repeated(array, count):
        return REPEATED

    class SeparateRayPPOTrainer(RayPPOTrainer):
        def fit(self):
            return DataProto

        def _labeled(self, columns):
            count = self.config["actor_rollout_ref"]["rollout"]["n"]
            labels = {"raw_prompt": np.repeat(columns["raw_prompt"], count)}
            asked = DataProto.from_dict({"dummy_tensor": columns["dummy_tensor"]}, labels)
            return asked, {"uid": repeated(np.arange(len(columns["raw_prompt"])), count)}

        def _fit_compute_log_prob(self, batch):
            return batch

        def _train(self, batch, labels):
            batch.non_tensor_batch |= labels
            batch.batch["token_level_rewards"] = REWARDS
            if self.use_critic:
                batch.batch["values"] = batch.batch["own_values"]
            about = self.config["algorithm"]
            compute_advantage(batch, about["adv_estimator"], about["gamma"], about["lam"])
            self.actor_rollout_wg.update_actor(batch)
            self.metrics.update(self.checkpoint_manager.update_weights(self.global_steps))

        def fit_step(self, columns):
            asked, labels = self._labeled(columns)
            self._train(self.async_rollout_manager.generate_sequences(asked), labels)
"""

ONE_STEP = """
    from verl.protocol import DataProto
    from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer

    class OneStepOffRayTrainer(SeparateRayPPOTrainer):
        async def fit(self):
            return DataProto

        async def _async_gen_next_batch(self, iterator):
            _, columns = next(iterator)
            asked, labels = self._labeled(columns)
            return await self.async_rollout_manager.generate_sequences(asked), labels

        async def fit_step(self, future, iterator):
            self._train(*await future)
"""

SOUND = {"REPEATED": "np.repeat(array, count)", "REWARDS": 'batch.batch["rm_scores"]'}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    separate = rewritten(SEPARATE, SOUND | broken)
    tree = files()
    tree["verl/trainer/ppo/ray_trainer.py"] += "\n    class RayPPOTrainer:\n        pass\n"
    tree |= {
        "verl/experimental/separation/ray_trainer.py": separate,
        "verl/experimental/one_step_off_policy/ray_trainer.py": ONE_STEP,
        "verl/utils/dataset/rl_dataset.py": DATASET,
        "verl/trainer/config/ppo_trainer.yaml": '{"data": {}, "algorithm": {}, "actor_rollout_ref": {"rollout": {}}}',
    }
    target = loads(FRAMEWORK, tree, {"omegaconf.py": OMEGACONF})
    made = [b for b in separate_trainers.boundaries(target) if isinstance(b, Boundary)]
    return target, {(b.path.rpartition(".")[0].rpartition(".")[2], s): b for b in made for s in b.settings}


def test_all_answer_and_read_back(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    trainers = ("SeparateRayPPOTrainer", "OneStepOffRayTrainer")
    assert set(boundaries) == {(t, f"step, {name}") for t in trainers for name in ("grpo", "gae")}
    check_calls(target, boundaries.values())


@pytest.mark.parametrize("trainer", ["SeparateRayPPOTrainer", "OneStepOffRayTrainer"])
@pytest.mark.parametrize(
    ("law", "broken"),
    [(RNK001, {"REWARDS": '-batch.batch["rm_scores"]'}), (GRP001, {"REPEATED": "np.tile(array, count)"})],
)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, trainer: str, law: Law, broken: dict[str, str], found: bool) -> None:
    """The sign of the reward, and labels that are repeated in another order than the prompts."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundaries[trainer, "step, grpo"], "step, grpo", target, found=found)
