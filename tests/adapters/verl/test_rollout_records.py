"""The records that verl's trainer writes of a rollout, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, rewritten, the_bound
from adapters.kit.round_trip import check_round_trip
from adapters.verl_specimen import files
from rl_sentinel.adapters.verl import FRAMEWORK, rollout_records
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

TRAINER = """
    import json
    from pathlib import Path

    marked_timer = None

    class RayPPOTrainer:
        def _log_rollout_data(self, batch, reward_extra_infos_dict, timing_raw, rollout_data_dir):
            with marked_timer("write", timing_raw):
                columns = {name: list(values) for name, values in reward_extra_infos_dict.items()}
                columns["input"] = self.tokenizer.batch_decode(batch.batch["prompts"], skip_special_tokens=True)
                columns["output"] = self.tokenizer.batch_decode(batch.batch["responses"], skip_special_tokens=True)
                columns["score"] = batch.batch["token_level_scores"].REDUCED.tolist()
                columns["gts"] = [about["ground_truth"] for about in ANSWER]
                if "request_id" in batch.non_tensor_batch:
                    KEPT["request_id"] = batch.non_tensor_batch["request_id"].tolist()
                rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
                lines = [json.dumps(row) for row in ROWS]
                Path(rollout_data_dir, f"{self.global_steps}.jsonl").write_text("\\n".join(lines))
"""

PROTO = """
    from types import SimpleNamespace

    class DataProto:
        @staticmethod
        def from_dict(tensors, non_tensors):
            return SimpleNamespace(batch=tensors, non_tensor_batch=non_tensors)
"""

WRITER = """
    import numpy as np

    def finish(request_ids):
        return {"request_id": np.array(request_ids)}
"""

SOUND = {"REDUCED": "sum(-1)", "KEPT": "columns", "ROWS": "rows", "ANSWER": "batch.non_tensor_batch['reward_model']"}


CASES: list[tuple[dict[str, str], bool, bool]] = [
    ({}, True, False),
    ({}, False, False),
    ({"KEPT": "reward_extra_infos_dict"}, True, True),
    ({"KEPT": "reward_extra_infos_dict"}, False, False),
    ({"REDUCED": "mean(-1)"}, False, True),
    ({"ROWS": "rows[:1]"}, False, True),
    ({"ANSWER": "reversed(batch.non_tensor_batch['reward_model'])"}, False, True),
]


@pytest.mark.parametrize(("broken", "numbered", "found"), CASES)
def test_records(loads: Loads, broken: dict[str, str], numbered: bool, found: bool) -> None:
    """Requests are compared where a rollout gives them to rows; without one, a record cannot lack it."""
    tree = {
        "verl/trainer/ppo/ray_trainer.py": rewritten(TRAINER, SOUND | broken),
        "verl/protocol.py": PROTO,
        "verl/workers/rollout/sglang_rollout/__init__.py": "",
        "verl/workers/rollout/sglang_rollout/sglang_rollout.py": WRITER if numbered else "import numpy",
    }
    target = loads(FRAMEWORK, files() | tree)
    bound = the_bound(rollout_records.boundaries(target))
    check_round_trip(target, bound)
    check_verdict(PLC004, bound, "records", target, found=found)
