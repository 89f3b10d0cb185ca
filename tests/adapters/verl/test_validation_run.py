"""verl's validation, from its prompts to the logged metrics, on specimens in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict, rewritten, the_only
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.test_validation import METRICS
from adapters.verl.test_validation import SOUND as OF_METRICS
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, validation_run
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001

DATASET = """
    class RLHFDataset:
        def __getitem__(self, number):
            return {"dummy_tensor": number}
"""

TRAINER = """
    import numpy as np
    from verl.protocol import DataProto
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    class RayPPOTrainer:
        def fit(self):
            return DataProto

        def _validate(self):
            n = self.config["actor_rollout_ref"]["rollout"]["val_kwargs"]["n"]
            sources, prompts, scores = [], [], []
            for columns in self.val_dataloader:
                rows = np.repeat(np.arange(len(columns["index"])), n)
                labels = {"raw_prompt": columns["raw_prompt"][SAMPLED]}
                tensors = {"dummy_tensor": columns["dummy_tensor"][SAMPLED]}
                batch = self.async_rollout_manager.generate_sequences(DataProto.from_dict(tensors, labels))
                sources.extend(columns["data_source"][SAMPLED])
                prompts.extend(PROMPTS)
                if "rm_scores" not in batch.batch:
                    batch.batch["rm_scores"] = MODEL
                scores.extend(batch.batch["rm_scores"].sum(1).tolist())
            logged = {}
            for source in dict.fromkeys(sources):
                own = [row for row, other in enumerate(sources) if other == source]
                infos = {"reward": [scores[row] for row in own]}
                found = process_validation_metrics([source], [prompts[row] for row in own], infos)[source]["reward"]
                logged |= {f"val-core/{source}/reward/{name}": value for name, value in found.items()}
            return logged
"""

NUMBERS, TEXTS = "columns['index'][SAMPLED]", "[self.tokenizer.decode(ids) for ids in batch.batch['prompts']]"


MODEL = "self.reward_loop_manager.compute_rm_score(batch).batch['rm_scores']"


def _bound(loads: Loads, sampled: str = "rows", prompts: str = NUMBERS, model: str = MODEL) -> tuple[Target, Boundary]:
    tree = files()
    metrics = rewritten(METRICS, OF_METRICS)
    tree["verl/trainer/ppo/metric_utils.py"] = metrics
    tree["verl/trainer/ppo/ray_trainer.py"] = (
        TRAINER.replace("PROMPTS", prompts).replace("SAMPLED", sampled).replace("MODEL", model)
    )
    tree["verl/utils/dataset/rl_dataset.py"] = DATASET
    tree["verl/trainer/config/ppo_trainer.yaml"] = (
        '{"trainer": {}, "actor_rollout_ref": {"rollout": {"val_kwargs": {"n": 1}}}}'
    )
    target = loads(FRAMEWORK, tree, {"omegaconf.py": OMEGACONF})
    return target, the_only(validation_run.boundaries(target))


def test_the_boundary_answers(loads: Loads) -> None:
    target, made = _bound(loads)
    assert answering({("_validate", "two sources"): made}, target) == []


@pytest.mark.parametrize(
    ("sampled", "prompts", "sound"),
    [("rows", NUMBERS, True), ("rows", TEXTS, False), ("rows // n * n", "list(range(len(rows)))", False)],
)
def test_samples_of_prompts(loads: Loads, sampled: str, prompts: str, sound: bool) -> None:
    """Prompts are told apart by their numbers; by their texts, or with each response a prompt, the metrics differ."""
    target, made = _bound(loads, sampled, prompts)
    check_verdict(MET001, made, "two sources", target, found=not sound)


@pytest.mark.parametrize(
    ("model", "sound"),
    [(MODEL, True), ("self.val_reward_fn(batch)  # not by the reward_loop_manager", False)],
)
def test_rewards_of_a_model(loads: Loads, model: str, sound: bool) -> None:
    """Where a reward model trains, it also validates."""
    target, made = _bound(loads, model=model)
    check_verdict(MET001, made, "a reward model", target, found=not sound)
    check_verdict(MET001, made, "two sources", target, found=False)
