"""verl's supervised fine-tuning, on a specimen of its trainer and its training engine in words of our own."""

import json

import pytest

from adapters.checks import Loads, bound, judged_at
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001

TRAINER = """
    import torch
    from torch import nn

    class FSDPSFTTrainer:
        def training_step(self, batch):
            self.fsdp_model.train()
            self.optimizer.zero_grad()
            parts = batch.split(self.config.data.micro_batch_size_per_gpu)
            for part in parts:
                logits = self.fsdp_model(input_ids=part["input_ids"]).logits[:, :-1]
                labels = part["input_ids"][:, 1:].reshape(-1)
                losses = nn.CrossEntropyLoss(reduction="none")(logits.reshape(-1, 1), labels)
                mask = part["loss_mask"][:, FIRST].reshape(-1)
                loss = (losses * mask).sum() / mask.sum().clamp(min=1)
                (loss / SHARE).backward()
            self.fsdp_model.clip_grad_norm_(max_norm=self.config.optim.clip_grad)
            self.optimizer.step()
            return {}
"""

TENSORDICT = """
    class TensorDict(dict):
        def __init__(self, source, batch_size):
            super().__init__(source)
            self.rows = batch_size[0]

        def split(self, size):
            starts = range(0, self.rows, size)
            return [TensorDict({n: x[i : i + size] for n, x in self.items()}, [size]) for i in starts]
"""

SINGLE = """
    class SFTDataset:
        def __getitem__(self, item):
            loss_mask = self.attention_mask[item].clone()
            loss_mask[self.length[item] - 1] = 0
            return {"loss_mask": loss_mask}
"""

MULTI = """
    class MultiTurnSFTDataset:
        def __getitem__(self, item):
            return {"loss_mask": self.loss_mask[item]}
"""

ENGINE = """
    import torch

    class FSDPEngine:
        def forward_backward_batch(self, data, loss_function, forward_only=False):
            tokens, whole = data["max_token_len_per_gpu"], data["loss_mask"].unbind()
            data["batch_num_tokens"] = sum(int(mask.sum()) for mask in whole)
            parts, room = [], 0
            for ids, mask in zip(data["input_ids"].unbind(), whole):
                if room < len(ids):
                    parts.append([])
                    room = tokens
                parts[-1].append((ids, mask))
                room -= len(ids)
            for part in parts:
                ids, masks = (torch.nested.as_nested_tensor(list(x), layout=torch.jagged) for x in zip(*part))
                loss, _ = self.forward_step({**data, "input_ids": ids, "loss_mask": masks}, loss_function=loss_function)
                loss.backward()
"""

LOSS = """
    import torch

    def sft_loss(config, model_output, data, dp_group=None):
        mask = torch.roll(data["loss_mask"].values(), shifts=-1)
        tokens = COUNT
        return -(model_output["log_probs"].values() * mask).sum() / tokens, {}
"""

TENSORS = """
    def get_tensordict(tensor_dict, non_tensor_dict):
        return {**tensor_dict, **non_tensor_dict}
"""


def _tree(first: str = "1:", share: str = "len(parts)", count: str = 'data["batch_num_tokens"]') -> dict[str, str]:
    config = {"data": {}, "model": {}, "optim": {"clip_grad": 1.0}}
    return files() | {
        "verl/trainer/fsdp_sft_trainer.py": TRAINER.replace("FIRST", first).replace("SHARE", share),
        "verl/trainer/config/sft_trainer.yaml": json.dumps(config),
        "verl/utils/dataset/sft_dataset.py": SINGLE,
        "verl/utils/dataset/multiturn_sft_dataset.py": MULTI,
        "verl/utils/tensordict_utils.py": TENSORS,
        "verl/workers/engine/fsdp/transformer_impl.py": ENGINE,
        "verl/workers/utils/losses.py": LOSS.replace("COUNT", count),
    }


def _load(loads: Loads, tree: dict[str, str]) -> Target:
    packages = {"omegaconf/__init__.py": OMEGACONF, "tensordict/__init__.py": TENSORDICT}
    return loads(FRAMEWORK, tree, packages)


def _broken(target: Target, law: Law, name: str, setting: str) -> bool:
    judgement = judged_at(law, bound(FRAMEWORK, target)[name, setting], setting, target)
    assert judgement.tried > 0
    return judgement.found is not None


def test_reads_back(loads: Loads) -> None:
    """Columns, settings and arguments survive the round trip: two datasets, and the engine."""
    target = _load(loads, _tree())
    mine = [b for (name, _), b in bound(FRAMEWORK, target).items() if name in ("training_step", "sft_loss")]
    assert len(mine) == 3
    check_round_trips(target, mine)


@pytest.mark.parametrize(
    ("first", "kind", "found"),
    [
        ("1:", "multi-turn", False),
        ("1:", "single-turn", True),
        (":-1", "multi-turn", True),
        (":-1", "single-turn", False),
    ],
)
def test_mask_of_each_dataset(loads: Loads, first: str, kind: str, found: bool) -> None:
    """One mask marks trained tokens, the other what predicts them; a step that reads one as the other is off by one."""
    assert _broken(_load(loads, _tree(first=first)), REF001, "training_step", kind) is found


@pytest.mark.parametrize(("share", "found"), [("len(parts)", False), ("1", True)])
def test_accumulated_gradients(loads: Loads, share: str, found: bool) -> None:
    """Gradients of micro-batches are averaged: their sum grows with the number of micro-batches."""
    assert _broken(_load(loads, _tree(share=share)), SPL001, "training_step", "multi-turn") is found


@pytest.mark.parametrize(("count", "found"), [('data["batch_num_tokens"]', False), ("mask.sum()", True)])
def test_tokens_of_the_batch(loads: Loads, count: str, found: bool) -> None:
    """The engine's loss is divided by the tokens of the whole batch, not by those of a micro-batch."""
    assert _broken(_load(loads, _tree(count=count)), SPL001, "sft_loss", "default") is found
