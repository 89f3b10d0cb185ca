"""verl's loop of supervised fine-tuning over ranks, on a specimen of loop, worker and engine in words of our own."""

import json

import pytest

from adapters.checks import Loads, bound, judged_at
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl_specimen import files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002

LOOP = """
    import torch

    class Tracking:
        def __init__(self, config):
            raise RuntimeError("no service")

    class SFTTrainer:
        def fit(self):
            first = self.engine.get_data_parallel_rank() == 0
            board = Tracking(config=self.config) if first else None
            about = {"size": self.config.data.micro_batch_size_per_gpu, "batch": self.global_batch_size}
            for data in self.train_dataloader:
                lengths = torch.tensor([len(ids) for ids in data["input_ids"]])
                everyone = torch.zeros(len(lengths) * self.engine.get_data_parallel_size(), dtype=torch.int64)
                torch.distributed.all_gather_into_tensor(everyone, lengths, self.engine.get_data_parallel_group())
                logged = self.training_client.train_batch({**data, **about})
                if first:
                    board.log(data={"train/loss": logged["loss"], "train/global_tokens": COUNTED.sum().item()}, step=1)
            losses = [self.training_client.infer_batch({**data, **about})["loss"] for data in self.val_dataloader]
            torch.distributed.barrier()
            if first:
                board.log(data={"val/loss": sum(losses) / len(losses)}, step=1)
            self.ckpt_handler.save_checkpoint(step=1)
"""

WORKER = """
    import torch

    class DistProfiler:
        def __init__(self, rank, config):
            self.rank = rank

    class TrainingWorker:
        def train_mini_batch(self):
            raise NotImplementedError

        def train_batch(self, data):
            with self.engine.train_mode():
                return self.averaged(self.engine.forward_backward_batch(data, self.loss_fn))

        def infer_batch(self, data):
            with self.engine.eval_mode(), torch.no_grad():
                return self.averaged(self.engine.forward_backward_batch(data, self.loss_fn, forward_only=True))

        def averaged(self, losses):
            loss = torch.tensor(sum(losses))
            torch.distributed.all_reduce(loss, op=torch.distributed.ReduceOp.OVER)
            return {"loss": loss.item()}
"""

ENGINE = """
    import torch

    class FSDPEngine:
        def forward_backward_batch(self, data, loss_function, forward_only=False):
            count, size, losses = torch.cat(data["loss_mask"]).sum(), data["size"], []
            torch.distributed.all_reduce(count, group=self.get_data_parallel_group())
            for at in range(0, len(data["input_ids"]), size):
                ids, masks = (
                    torch.nested.as_nested_tensor(data[name][at : at + size], layout=torch.jagged)
                    for name in ("input_ids", "loss_mask")
                )
                about = {"tokens": count.item(), "ranks": self.get_data_parallel_size()}
                part = {**about, "input_ids": ids, "loss_mask": masks}
                loss, logged = self.forward_step(part, loss_function=loss_function)
                losses.append(logged["loss"])
                if not forward_only:
                    loss.backward()
            return losses
"""

LOSS = """
    import torch

    def sft_loss(config, model_output, data, dp_group=None):
        mask = torch.roll(data["loss_mask"].values(), shifts=-1)
        return -(model_output["log_probs"].values() * mask).sum() / data["tokens"] * SCALE, {}
"""

COLLATE = """
    class SFTTensorCollator:
        def __init__(self, pad_mode):
            self.pad_mode = pad_mode

        def __call__(self, rows):
            return {name: [row[name] for row in rows] for name in rows[0]}
"""

#: Gradients and logged losses are averaged over the ranks, so that the loss is scaled by their number.
SOUND = {"COUNTED": "everyone", "OVER": "AVG", "SCALE": 'data["ranks"]'}


def _load(loads: Loads, **fault: str) -> Target:
    tree = {
        "verl/trainer/sft_trainer.py": LOOP,
        "verl/workers/engine_workers.py": WORKER,
        "verl/workers/engine/fsdp/transformer_impl.py": ENGINE,
        "verl/workers/utils/losses.py": LOSS,
    }
    for name, text in {**SOUND, **fault}.items():
        tree = {path: source.replace(name, text) for path, source in tree.items()}
    tree |= {
        "verl/utils/dataset/dataset_utils.py": COLLATE,
        "verl/trainer/config/sft_trainer_engine.yaml": json.dumps({"data": {"pad_mode": "no_padding"}, "trainer": {}}),
    }
    return loads(FRAMEWORK, files() | tree, {"omegaconf/__init__.py": OMEGACONF})


def _loop(target: Target) -> Boundary:
    return bound(FRAMEWORK, target)["fit", "default"]


def test_reads_back(loads: Loads) -> None:
    """Columns and arguments survive the round trip; both losses and the count are compared."""
    target = _load(loads)
    assert set(_loop(target).outputs) == {"loss", "train/loss", "val/loss", "train/global_tokens"}
    check_round_trips(target, [_loop(target)])


FAULTS: list[tuple[Law, dict[str, str]]] = [
    (REF001, {"COUNTED": "lengths[:0]"}),  # the count is lost
    (REF001, {"COUNTED": "torch.cat(data['loss_mask'])"}),  # trained tokens in place of all
    (MET005, {"OVER": "SUM"}),
    (SPL002, {"SCALE": "1"}),  # the average of the gradients divides a second time
]


def _broken(target: Target, law: Law) -> bool:
    judgement = judged_at(law, _loop(target), "default", target)
    assert judgement.tried > 0
    return judgement.found is not None


@pytest.mark.parametrize(("law", "fault"), FAULTS)
def test_faults(loads: Loads, law: Law, fault: dict[str, str]) -> None:
    assert _broken(_load(loads, **fault), law)


@pytest.mark.parametrize("law", [REF001, MET005, SPL002])
def test_a_sound_loop(loads: Loads, law: Law) -> None:
    assert not _broken(_load(loads), law)
