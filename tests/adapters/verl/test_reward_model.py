"""verl's worker with a reward model, on a specimen in words of our own."""

import pytest

from adapters.checks import Loads, bound, judged_at
from adapters.kit.round_trip import check_round_trips
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.laws.differs_from_reference import LAW as REF001

WORKER = """
    import torch
    from verl import DataProto

    class RewardModelWorker:
        def compute_rm_score(self, data):
            from flash_attn.bert_padding import unpad_input

            batch = self.ulysses_sharding_manager.preprocess_data(data=data).batch
            size = 1 if self.config.use_dynamic_bsz else self.config.micro_batch_size_per_gpu
            scores = []
            for start in range(0, len(batch["input_ids"]), size):
                part = {n: batch[n][start : start + size] for n in ("input_ids", "attention_mask", "position_ids")}
                logits = self.reward_module(**part).logits.squeeze(-1)
                scores.append(logits.gather(1, self.last(part["attention_mask"])))
            mask, width = batch["attention_mask"], batch["responses"].shape[1]
            spread = torch.zeros(mask.shape).scatter(1, self.last(mask), torch.cat(scores))
            return DataProto.from_dict({"rm_scores": spread[:, -width:]})

        def last(self, mask):
            return LAST
"""

SOUND = "mask.sum(1, keepdim=True) - 1"


def _target(loads: Loads, old: str = "", new: str = "") -> Target:
    source = WORKER.replace("LAST", SOUND)
    assert old in source
    return loads(FRAMEWORK, files() | {"verl/workers/fsdp_workers.py": source.replace(old, new)})


def test_reads_back(loads: Loads) -> None:
    target = _target(loads)
    check_round_trips(target, [bound(FRAMEWORK, target)["compute_rm_score", "micro-batches"]])


@pytest.mark.parametrize("setting", ["micro-batches", "dynamic batch size"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        (SOUND, "mask.shape[1] - 1 + 0 * mask[:, :1]"),  # at the padding
        ("self.last(part[", "0 * self.last(part["),  # the score of the prompt
        ("torch.cat(scores)", "torch.cat(scores[::-1])"),
    ],
)
def test_where_a_score_comes_from_and_lands(loads: Loads, setting: str, old: str, new: str) -> None:
    target = _target(loads, old, new)
    judgement = judged_at(REF001, bound(FRAMEWORK, target)["compute_rm_score", setting], setting, target)
    assert judgement.tried > 0
    one_batch = "[::-1]" in new and setting == "micro-batches"  # all rows are in one, so that no order is lost
    assert (judgement.found is not None) is (bool(new) and not one_batch)
