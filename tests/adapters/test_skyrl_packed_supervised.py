"""SkyRL's packed supervised examples on Megatron, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, check_verdict, outputs_of, the_only
from adapters.kit.round_trip import check_calls
from adapters.skyrl_worker_specimen import FILES
from rl_sentinel.adapters.skyrl import FRAMEWORK, packed_supervised
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002

COLLATORS = """
    import torch

    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch

    class PackedDataCollator:
        def __init__(self, tokenizer, max_tokens_per_microbatch, dp_size, tp_size, **options):
            self.padding, self.most = tokenizer.pad_token_id, max_tokens_per_microbatch
            self.ranks, self.align = dp_size, tp_size

        def __call__(self, examples, batch_size):
            share = len(examples) // self.ranks
            bins = []
            for rank in range(self.ranks):
                bins.append([])
                for example in examples[rank * share : (rank + 1) * share]:
                    if bins[-1] and sum(len(x["input_ids"]) for x in [*bins[-1], example]) > self.most:
                        bins.append([])
                    bins[-1].append(example)
            if len(bins) % self.ranks:
                bins = [[example] for example in examples]
            rows = [[], []]
            for own in bins:
                tokens, masks = [], []
                for example in own:
                    padding = -len(example["input_ids"]) % self.align
                    tokens += example["input_ids"] + [self.padding] * padding
                    masks += MASKS + [0] * padding
                rows[0].append(tokens)
                rows[1].append(masks)
            width = max(map(len, rows[0]))
            tokens, masks = (torch.tensor([row + [0] * (width - len(row)) for row in kind]) for kind in rows)
            lengths = [torch.tensor([len(x["input_ids"]) for x in own]) for own in bins]
            batch = TrainingInputBatch(sequences=tokens, loss_mask=masks / (COUNT), sub_seq_lengths=lengths)
            batch.metadata = {}
            return batch
"""

LOG_PROBS = """
    import torch

    class DistributedLogprob:
        @staticmethod
        def apply(*inputs):
            raise RuntimeError("there is no vocabulary")

    def from_parallel_logits_to_logprobs_packed_sequences(outputs, tokens):
        return DistributedLogprob.apply(outputs, tokens)
"""

PADDING = """
    import megatron.core.parallel_state as mpu

    def remove_left_padding(tokens, padding):
        raise RuntimeError(f"{mpu} has no padding to remove")
"""

WORKER = """
    class MegatronPolicyWorkerBase:
        def forward_backward(self, data, loss_fn=None):
            self.model.train()
            batches = list(data.chunk(self.cfg.micro_train_batch_size_per_gpu))
            reports = self.model.forward_backward_mini_batch(batches, loss_fn)
            return {"loss": sum(report["loss"] for report in reports)}
"""

MEGATRON = """
    from types import SimpleNamespace

    import megatron.core.parallel_state as mpu
    import torch
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from skyrl.backends.skyrl_train.distributed.megatron.model_utils import (
        from_parallel_logits_to_logprobs_packed_sequences,
    )

    class MegatronModelWrapper:
        def forward_backward_mini_batch(self, batches, loss_fn):
            assert loss_fn == "cross_entropy" and self.remove_microbatch_padding

            def step(iterator, model):
                data = next(iterator)
                align = mpu.get_tensor_model_parallel_world_size()
                starts = [0]
                for row in data["sub_seq_lengths"]:
                    for length in row.tolist():
                        starts.append(starts[-1] + length + -length % align)
                own = data["sequences"][:, : starts[-1]].to(torch.cuda.current_device())
                assert len(own) == 1
                outputs = model(own, packed_seq_params=SimpleNamespace(cu_seqlens_q_padded=torch.tensor(starts)))

                def compute_loss(outputs):
                    logprob = from_parallel_logits_to_logprobs_packed_sequences(outputs, own.roll(-1, 1))
                    weight = data["loss_mask"][:, : starts[-1]]
                    loss = -torch.where(weight > 0, logprob * weight, 0.0).sum()
                    return loss * FACTOR * mpu.get_data_parallel_world_size(), {"loss": loss.item()}

                return outputs, compute_loss

            schedule, model = get_forward_backward_func(), self.actor_module
            return schedule(
                forward_step_func=step, data_iterator=iter(batches), model=model, num_microbatches=len(batches)
            )
"""


def _bound(
    loads: Loads,
    masks: str = "example['loss_mask'] + [0]",
    count: str = "masks.sum().clamp(min=1)",
    factor: str = "len(batches)",
) -> tuple[Target, Boundary]:
    place = "skyrl/backends/skyrl_train"
    files = {
        "skyrl/train/dataset/collators.py": COLLATORS.replace("COUNT", count).replace("MASKS", masks),
        f"{place}/distributed/megatron/model_utils.py": LOG_PROBS,
        f"{place}/distributed/megatron/megatron_utils.py": PADDING,
        f"{place}/workers/megatron/megatron_worker.py": WORKER,
        f"{place}/workers/megatron/megatron_model_wrapper.py": MEGATRON.replace("FACTOR", factor),
    }
    target = loads(FRAMEWORK, {**FILES, **files})
    return target, the_only(packed_supervised.boundaries(target))


def test_by_hand(loads: Loads) -> None:
    """The mean over three trained tokens of two responses, of different lengths."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])
    mask = torch.tensor([[True, False, True], [True, False, False]])
    logprob = torch.tensor([[-1.0, -8.0, -2.0], [-6.0, 0.0, 0.0]])
    batch = batch_of(mask, logprob=logprob, length=torch.tensor([3, 1]))
    assert outputs_of(target, boundary, "supervised, packed", batch)["loss"].item() == pytest.approx(3)


CASES: list[tuple[Law, dict[str, str]]] = [
    (REF001, {"masks": "[0] + example['loss_mask']"}),
    (REF001, {"count": "masks.numel()"}),
    (SPL001, {"factor": "1"}),
    (SPL002, {"count": "masks.sum().clamp(min=1) * self.ranks"}),
]


@pytest.mark.parametrize(("law", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, broken: dict[str, str], found: bool) -> None:
    """A mask that is not shifted, a count of all places, a mean over rows that are packed, a count of each rank."""
    target, boundary = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundary, "supervised, packed", target, found=found)
