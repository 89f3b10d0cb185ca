"""verl's v1 trainer, whose columns pass through a queue, on a specimen in words of our own."""

import pytest
import torch

from adapters.checks import Loads, broken_outputs, by_setting, rewritten
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.tensordict_specimen import SYNC, TENSORDICT
from adapters.verl_specimen import OUTPUTS, files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, queue_trainer
from rl_sentinel.adapters.verl.queue_fakes import Queue, cut, padded
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.better_response_ranked_below import LAW as RNK001
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.divergence_raises_reward import LAW as KLR001
from rl_sentinel.laws.group_leaks_into_group import LAW as GRP001

BASE = """
    from abc import ABC, abstractmethod
    import numpy as np
    import torch
    from tensordict import TensorDict
    from verl.protocol import DataProto
    from verl.trainer.ppo.ray_trainer import apply_kl_penalty
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    tq = None

    class PPOTrainer(ABC):
        @abstractmethod
        def on_step_end(self):
            pass

        def _compute_advantage(self, batch, metrics):
            names = ["uid", "response_mask", "rm_scores", "old_log_probs", "ref_log_prob", "values"]
            data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
            lengths = data["response_mask"].offsets().diff().tolist()
            uids = data.pop("uid").tolist()
            data = DataProto(data.to_padded_tensor(), {"uid": np.array(UIDS, dtype=object)}, {})
            data.batch["token_level_scores"] = data.batch["token_level_rewards"] = SCORES
            settings = self.config.algorithm
            if settings.use_kl_in_reward:
                apply_kl_penalty(data, self.kl_ctrl_in_reward)
                data.batch["token_level_rewards"] = PENALIZED
            given = {"gamma": settings.gamma, "lam": settings.lam, "config": settings}
            data = compute_advantage_for_multi_trajectories(data, batch.keys, settings.adv_estimator, **given)
            added = ["advantages", "returns", *(["token_level_rewards"] if settings.use_kl_in_reward else [])]
            rows = {name: [row[:n] for row, n in zip(WRITTEN, lengths)] for name in added}
            fields = {name: torch.nested.as_nested_tensor(x, layout=torch.jagged) for name, x in rows.items()}
            return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(fields))
"""

CONTROL = """
    @dataclass
    class KLControlConfig:
        type: str = "fixed"
        kl_coef: float = 0.001
"""

CONTROLLER = """
    def get_kl_controller(kl_ctrl):
        return FixedKLController(kl_ctrl.kl_coef)
"""

SOUND = {
    "UIDS": "uids",
    "SCORES": 'data.batch["rm_scores"]',
    "PENALIZED": 'data.batch["token_level_rewards"]',
    "WRITTEN": "data.batch[name]",
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    base = rewritten(BASE, SOUND | broken)
    tree = files()
    tree["verl/trainer/config/algorithm.py"] += CONTROL
    tree["verl/trainer/ppo/core_algos.py"] += CONTROLLER
    tree["verl/trainer/config/ppo_trainer.yaml"] = '{"algorithm": {}}'

    tree |= {
        "verl/trainer/ppo/v1/utils.py": OUTPUTS.replace("BROADCAST", "one[owner] * mask"),
        "verl/trainer/ppo/v1/trainer_base.py": base,
        "verl/trainer/ppo/v1/trainer_sync.py": SYNC,
    }
    target = loads(FRAMEWORK, tree, {"omegaconf.py": OMEGACONF, "tensordict.py": TENSORDICT})
    return target, by_setting(queue_trainer.boundaries(target))


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert set(boundaries) == {"grpo", "gae", "gae, KL in the reward"}
    check_calls(target, boundaries.values())


CASES: list[tuple[Law, str, dict[str, str]]] = [
    (RNK001, "grpo", {"SCORES": '-data.batch["rm_scores"]'}),
    (GRP001, "grpo", {"UIDS": '["one" for _ in uids]'}),
    (REF001, "gae, KL in the reward", {"PENALIZED": 'data.batch["token_level_scores"]'}),
    (KLR001, "gae, KL in the reward", {"PENALIZED": '2 * data.batch["rm_scores"] - data.batch["token_level_rewards"]'}),
    (RNK001, "grpo", {"WRITTEN": "-data.batch[name]"}),
]


@pytest.mark.parametrize(("law", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """Sign, labels, a penalty that is lost or of the wrong sign, what is written back."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    broken_names = broken_outputs(law, boundaries[setting], setting, target)
    broke = "token_reward" in broken_names if law is REF001 else bool(broken_names)
    assert broke is found


def test_rows_of_the_queue() -> None:
    """Rows lose their padding on the way in, and get it back on the way out."""
    column = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    Queue.fill(["a", "b"], {"x": cut(column, torch.tensor([2, 1]))})
    assert [len(Queue.rows[key]["x"]) for key in ("a", "b")] == [2, 1]
    assert padded([Queue.rows[key]["x"] for key in ("b", "a")], 3).tolist() == [[3.0, 0.0, 0.0], [1.0, 2.0, 0.0]]
    Queue.kv_clear(["a"], "train")
    assert list(Queue.rows) == ["b"]
