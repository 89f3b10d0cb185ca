"""SkyRL's supervised fine-tuning, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, check_verdict, outputs_of
from adapters.kit.round_trip import check_calls, check_round_trips
from adapters.skyrl_worker_specimen import FILES
from rl_sentinel.adapters.skyrl import FRAMEWORK, supervised
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.context_split_changes_signal import LAW as SPL004
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.rank_split_changes_loss import LAW as SPL002

COLLATORS = """
    import torch

    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch

    class DefaultCollator:
        def __init__(self, tokenizer, micro_train_batch_size_per_gpu):
            self.padding, self.size = tokenizer.pad_token_id, micro_train_batch_size_per_gpu

        def __call__(self, examples, batch_size):
            longest, actions = max(len(x["input_ids"]) for x in examples), max(x["num_actions"] for x in examples)
            tokens = [[self.padding] * (longest - len(x["input_ids"])) + x["input_ids"] for x in examples]
            masks = [[0] * (actions - x["num_actions"]) + x["loss_mask"] for x in examples]
            mask = torch.tensor(masks).float()
            batch = TrainingInputBatch(sequences=torch.tensor(tokens), loss_mask=mask / (COUNT))
            batch.metadata = {"response_length": actions}
            return batch
"""

WORKER = """
    import torch

    class PolicyWorkerBase:
        def forward_backward(self, data, loss_fn=None):
            losses = []
            for own in data.chunk(self.cfg.micro_train_batch_size_per_gpu):
                tokens = own["sequences"].to(torch.cuda.current_device())
                logprob, _ = self.model(tokens, own.metadata["response_length"], return_output=True)
                loss = torch.where(own["loss_mask"] > 0, -logprob * own["loss_mask"], 0.0).sum() * SHARE
                self.strategy.backward(loss * self.mesh_rank.dp_size, self.model, self.optimizer)
                losses.append(loss.item())
            return {"loss": sum(losses) / DIVISOR}
"""

MEGATRON = """
    import megatron.core.parallel_state as mpu
    import torch
    from megatron.core.pipeline_parallel import get_forward_backward_func

    def remove_left_padding(tokens, padding):
        rows = [torch.cat([row[row != padding], row[row == padding]]) for row in tokens]
        return torch.stack(rows)

    def from_parallel_logits_to_logprobs(outputs):
        raise RuntimeError("there is no vocabulary")

    class MegatronModelWrapper:
        def forward_backward_mini_batch(self, batches, loss_fn):
            assert loss_fn == "cross_entropy"

            def step(iterator, model):
                data = next(iterator)
                outputs = model(remove_left_padding(data["sequences"].to(torch.cuda.current_device()), 0))

                def compute_loss(outputs):
                    logprob = from_parallel_logits_to_logprobs(outputs)
                    loss = 0.0
                    for row, weight, tokens in zip(logprob, data["loss_mask"], data["sequences"]):
                        count = int((tokens != 0).sum()) - 1
                        own = weight[len(weight) - count :]
                        loss = loss - torch.where(own > 0, row[:count] * own, 0.0).sum()
                    return loss * len(batches) * mpu.get_data_parallel_world_size(), {"loss": loss.item()}

                return outputs, compute_loss

            schedule, model = get_forward_backward_func(), self.actor_module
            return schedule(
                forward_step_func=step, data_iterator=iter(batches), model=model, num_microbatches=len(batches)
            )

    class MegatronPolicyWorkerBase:
        def forward_backward(self, data, loss_fn=None):
            self.model.train()
            batches = list(data.chunk(self.cfg.micro_train_batch_size_per_gpu))
            reports = self.model.forward_backward_mini_batch(batches, loss_fn)
            return {"loss": sum(report["loss"] for report in reports)}
"""


def _bound(
    loads: Loads, count: str = "mask.sum().clamp(min=1)", share: str = "1", divisor: str = "1"
) -> tuple[Target, dict[str, Boundary]]:
    files = {
        "skyrl/train/dataset/collators.py": COLLATORS.replace("COUNT", count),
        "skyrl/backends/skyrl_train/workers/worker.py": WORKER.replace("SHARE", share).replace("DIVISOR", divisor),
    }
    target = loads(FRAMEWORK, {**FILES, **files})
    made = [one for one in supervised.boundaries(target) if isinstance(one, Boundary)]
    return target, {one.stage: one for one in made}


def test_by_hand(loads: Loads) -> None:
    """The mean over three trained tokens of two responses, of different lengths."""
    target, boundaries = _bound(loads)
    check_calls(target, boundaries.values())
    mask = torch.tensor([[True, False, True], [True, False, False]])
    logprob = torch.tensor([[-1.0, -8.0, -2.0], [-6.0, 0.0, 0.0]])
    batch = batch_of(mask, logprob=logprob, length=torch.tensor([3, 1]))
    assert outputs_of(target, boundaries["policy-loss"], "supervised, loss", batch)["loss"].item() == pytest.approx(3)
    logged = outputs_of(target, boundaries["metric"], "supervised, logged loss", batch)["logged loss"]
    assert logged.item() == pytest.approx(3)


CASES: list[tuple[Law, str, str, dict[str, str]]] = [
    (REF001, "policy-loss", "supervised, loss", {"count": "mask.numel()"}),
    (SPL001, "policy-loss", "supervised, loss", {"share": "(len(own['sequences']) / len(data['sequences']))"}),
    (SPL002, "policy-loss", "supervised, loss", {"count": "mask.sum().clamp(min=1) / len(mask) * self.size"}),
    (MET005, "metric", "supervised, logged loss", {"divisor": "len(losses)"}),
]


@pytest.mark.parametrize(("law", "stage", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(  # noqa: PLR0913 - parametrised
    loads: Loads, law: Law, stage: str, setting: str, broken: dict[str, str], found: bool
) -> None:
    """A count of all places, a share of the micro-batch, a count of the micro-batch, an average of sums."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundaries[stage], setting, target, found=found)


MEAN, RANKS = "mask.sum().clamp(min=1)", "mpu.get_data_parallel_world_size()"
ON_MEGATRON: list[tuple[Law, str, str, dict[str, str]]] = [
    (REF001, "policy-loss", "supervised, loss", {MEAN: "mask.numel()"}),
    (SPL002, "policy-loss", "supervised, loss", {MEAN: "mask.sum().clamp(min=1) / 2 * self.size"}),
    (SPL004, "parallel", "supervised, context parallel", {RANKS: f"{RANKS[:-1]}with_context_parallel=True)"}),
]


@pytest.mark.parametrize(("law", "stage", "setting", "broken"), ON_MEGATRON)
@pytest.mark.parametrize("found", [False, True])
def test_on_megatron(  # noqa: PLR0913 - parametrised
    loads: Loads, law: Law, stage: str, setting: str, broken: dict[str, str], found: bool
) -> None:
    """The same through Megatron's schedule, a count of all places or of the micro-batch, and ranks that share rows."""
    place = "skyrl/backends/skyrl_train"
    collators, megatron = COLLATORS.replace("COUNT", MEAN), MEGATRON
    for word, other in broken.items() if found else ():
        collators, megatron = collators.replace(word, other), megatron.replace(word, other)
    paths = ("workers/megatron/megatron_worker", "workers/megatron/megatron_model_wrapper")
    files = {f"{place}/{path}.py": megatron for path in (*paths, "distributed/megatron/megatron_utils")}
    target = loads(FRAMEWORK, {**FILES, **files, "skyrl/train/dataset/collators.py": collators})
    made: dict[str, Boundary] = {b.stage: b for b in supervised.boundaries(target) if isinstance(b, Boundary)}
    check_verdict(law, made[stage], setting, target, found=found)
    check_round_trips(target, made.values())
