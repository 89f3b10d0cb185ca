"""Rollout correction in verl's v1 trainer, whose columns are in a queue, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, by_setting, check_verdict, rewritten
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.tensordict_specimen import SYNC, TENSORDICT
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, queue_correction
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

BASE = """
    from abc import ABC, abstractmethod
    import torch
    from tensordict import TensorDict
    from verl.protocol import DataProto
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

    tq = None

    class PPOTrainer(ABC):
        @abstractmethod
        def on_step_end(self):
            pass

        def _compute_old_log_prob(self, batch, metrics):
            assert self.config.algorithm.rollout_correction.bypass_mode
            place = {"keys": batch.keys, "partition_id": batch.partition_id}
            data = tq.kv_batch_get(**place, select_fields=["rollout_log_probs"])
            rows = [row COPY for row in data["rollout_log_probs"].unbind()]
            fields = TensorDict({"old_log_probs": torch.nested.as_nested_tensor(rows, layout=torch.jagged)})
            return tq.kv_batch_put(**place, fields=fields)

        def _compute_advantage(self, batch, metrics):
            names = ["response_mask", "old_log_probs", "rollout_log_probs"]
            data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
            lengths = data["response_mask"].offsets().diff().tolist()
            data = DataProto(data.to_padded_tensor(), {}, {})
            section = self.config.algorithm.rollout_correction
            own = {name: section[name] for name in section if name.startswith("rollout_")}
            masks = [data.batch[name] for name in (OLD, "rollout_log_probs", "response_mask")]
            weights, kept, _ = compute_rollout_correction_and_rejection_mask(*masks, **own)
            added = {"response_mask": KEPT}
            if weights is not None:
                added["rollout_is_weights"] = weights.batch["rollout_is_weights"]
            rows = {name: [row[:n] for row, n in zip(column, lengths)] for name, column in added.items()}
            fields = {name: torch.nested.as_nested_tensor(x, layout=torch.jagged) for name, x in rows.items() WRITTEN}
            return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(fields))
"""

HELPER = """
    import math
    import torch
    from verl.protocol import DataProto

    def compute_rollout_correction_and_rejection_mask(
        old, rollout, mask, rollout_is=None, rollout_is_threshold=2.0, rollout_rs=None, rollout_rs_threshold=None
    ):
        gap, weights, kept = torch.where(mask > 0, old - rollout, 0.0), None, mask
        if rollout_is == "token":
            weights = DataProto({"rollout_is_weights": gap.exp().clamp(max=rollout_is_threshold) * mask}, {}, {})
        if rollout_rs == "seq_mean_k1":
            low, high = (math.log(float(bound)) for bound in rollout_rs_threshold.split("_"))
            mean = -gap.sum(1) / mask.sum(1).clamp(min=1)
            kept = mask * ((mean >= low) & (mean <= high))[:, None]
        return weights, kept, {}
"""

SOUND = {"COPY": "", "OLD": '"old_log_probs"', "KEPT": "kept", "WRITTEN": ""}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    base = rewritten(BASE, SOUND | broken)
    tree = files() | {
        "verl/trainer/config/ppo_trainer.yaml": '{"algorithm": {"rollout_correction": {}}}',
        "verl/trainer/ppo/rollout_corr_helper.py": HELPER,
        "verl/trainer/ppo/v1/trainer_base.py": base,
        "verl/trainer/ppo/v1/trainer_sync.py": SYNC,
    }
    target = loads(FRAMEWORK, tree, {"omegaconf.py": OMEGACONF, "tensordict.py": TENSORDICT})
    return target, by_setting(queue_correction.boundaries(target))


def test_all_boundaries_answer_and_read_back(loads: Loads) -> None:
    """One weight, one rejection and bypass mode."""
    target, boundaries = _bound(loads)
    assert set(boundaries) == {"weight token", "reject seq_mean_k1", "bypass mode"}
    check_calls(target, boundaries.values())


CASES: list[tuple[Law, str, dict[str, str]]] = [
    (PLC004, "bypass mode", {"COPY": ".roll(1)"}),
    (REF001, "weight token", {"OLD": '"rollout_log_probs"'}),
    (REF001, "weight token", {"WRITTEN": 'if name == "response_mask"'}),
    (REF001, "reject seq_mean_k1", {"KEPT": 'data.batch["response_mask"]'}),
]


@pytest.mark.parametrize(("law", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """Log-probs at other tokens, the wrong policy, weights and rejections that are not written back."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundaries[setting], setting, target, found=found)
