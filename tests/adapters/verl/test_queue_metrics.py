"""The metrics of verl's v1 trainer: of a step with a synthetic row, and of validation; on specimens of our own."""

import importlib.util
import sys
from pathlib import Path

import pytest

from adapters.checks import Loads, answering, by_setting, check_verdict, rewritten
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.tensordict_specimen import SYNC, TENSORDICT
from adapters.verl.test_validation import METRICS
from adapters.verl.test_validation import SOUND as OF_METRICS
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, queue_metrics
from rl_sentinel.adapters.verl.queue_fakes import takes_ages
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001

PADDING = """
    import torch

    tq = KVBatchMeta = None

    def upsample_batch_to_divisible_size(batch, multiple, eos_token_id):
        missing = -len(batch) % multiple
        one = torch.full((1,), eos_token_id)
        row = {"prompts": one, "responses": one, "response_mask": one * 0, "rm_scores": one * 0.0}
        keys = [f"pad_{number}_0" for number in range(missing)]
        for key in keys:
            tq.rows[key] = dict(row)
        tags = [{"is_padding": True} for _ in keys]
        return KVBatchMeta(keys=batch.keys + keys, tags=batch.tags + tags, partition_id=batch.partition_id)
"""

BASE = """
    from abc import ABC, abstractmethod
    import uuid
    import torch
    from verl.protocol import DataProto
    from verl.trainer.ppo.metric_utils import compute_data_metrics, process_validation_metrics

    tq = None

    class PPOTrainer(ABC):
        @abstractmethod
        def on_step_end(self):
            pass

        def _compute_metrics(self, batch, metrics, timing_raw, global_steps, epoch):
            names = ["responses", "response_mask", "rm_scores", "advantages", "values", "returns"]
            data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
            lengths = data["responses"].offsets().diff()
            data = DataProto(data.to_padded_tensor(), {}, {})
            width = data.batch["responses"].shape[1]
            own = (torch.arange(width) < lengths[:, None]).long()
            data.batch["attention_mask"] = torch.cat([own[:, :1] * 0 + 1, own], 1)
            data.batch["token_level_scores"] = SCORES
            real = [row for row, tag in enumerate(batch.tags) if COUNTED]
            metrics.update(compute_data_metrics(data.select_idxs(real)))

        def _validate(self):
            sources, prompts, scores = [], [], []
            for columns in self.val_dataloader:
                columns["uid"] = [str(uuid.uuid4()) for _ in columns["raw_prompt"]]
                self.agent_loop_manager.generate_sequences(columns)
                batch, _ = self.replay_buffer.sample(partition_id="val", global_steps=1, batch_size=1)
                final = {key.rpartition("_")[0]: key for key in KEYS}
                names = ["uid", "rm_scores", "data_source"]
                data = tq.kv_batch_get(keys=list(final.values()), partition_id="val", select_fields=names)
                prompts.extend(data["uid"].tolist())
                sources.extend(data["data_source"].tolist())
                scores.extend(TOTAL.tolist())
            logged = {}
            for source in dict.fromkeys(sources):
                own = [row for row, other in enumerate(sources) if other == source]
                infos = {"reward": [scores[row] for row in own]}
                found = process_validation_metrics([source], [prompts[row] for row in own], infos)[source]["reward"]
                logged |= {f"val-core/{source}/reward/{name}": value for name, value in found.items()}
            return logged
"""

DATA = """
    def compute_data_metrics(batch, use_critic=True):
        scores, lengths = batch.batch["token_level_scores"].sum(1), batch.batch["attention_mask"][:, 1:].sum(1)
        return {"critic/score/mean": scores.mean(), "response_length/mean": lengths.float().mean()}
"""

SOUND = {
    "SCORES": 'data.batch["rm_scores"]',
    "COUNTED": 'not tag.get("is_padding")',
    "KEYS": "batch.keys",
    "TOTAL": 'data["rm_scores"].sum(dim=1)',
}


def _bound(loads: Loads, **broken: str) -> tuple[Target, dict[str, Boundary]]:
    base = rewritten(BASE, SOUND | broken)
    tree = files()
    metrics = rewritten(METRICS, OF_METRICS)
    tree |= {
        "verl/trainer/ppo/metric_utils.py": metrics + DATA,
        "verl/trainer/ppo/padding_utils.py": PADDING,
        "verl/trainer/ppo/v1/trainer_base.py": base,
        "verl/trainer/ppo/v1/trainer_sync.py": SYNC,
        "verl/trainer/config/ppo_trainer.yaml": (
            '{"trainer": {}, "data": {}, "actor_rollout_ref": {"rollout": {"val_kwargs": {"n": 1}}}}'
        ),
    }
    target = loads(FRAMEWORK, tree, {"omegaconf.py": OMEGACONF, "tensordict.py": TENSORDICT})
    return target, by_setting(queue_metrics.boundaries(target))


@pytest.mark.parametrize(("taken", "ages"), [("batch, off_policy = ", True), ("batch = ", False)])
def test_what_a_trainer_takes_from_its_buffer(tmp_path: Path, taken: str, ages: bool) -> None:
    module = tmp_path / "buffered.py"
    step = f"class Trainer:\n    def step(self):\n        {taken}self.replay_buffer.sample()\n"
    module.write_text(step + "\n\nclass Sync(Trainer):\n    pass\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"buffered_{ages}", module)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    assert takes_ages(loaded.Sync) is ages


def test_all_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert set(boundaries) == {"with a synthetic row", "two sources", "two outputs a session"}
    assert answering({(s, s): b for s, b in boundaries.items()}, target) == []


@pytest.mark.parametrize(
    ("setting", "broken"),
    [
        ("with a synthetic row", {"COUNTED": "True"}),
        ("with a synthetic row", {"SCORES": 'data.batch["advantages"]'}),
        ("two outputs a session", {"KEYS": "reversed(batch.keys)"}),
        ("two sources", {"TOTAL": 'data["rm_scores"].to_padded_tensor(0.0).mean(1)'}),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, setting: str, broken: dict[str, str], found: bool) -> None:
    """Synthetic rows that count, the wrong column, the first output of a session, a mean over tokens."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(MET001, boundaries[setting], setting, target, found=found)
