"""SkyRL's evaluation during supervised fine-tuning, on a specimen of its call shapes in words of our own."""

import pytest
import torch

from adapters.checks import Loads, check_verdict, outputs_of, the_bound
from adapters.kit.round_trip import check_round_trips
from adapters.skyrl_worker_specimen import FILES
from adapters.test_skyrl_supervised import COLLATORS
from rl_sentinel.adapters.skyrl import FRAMEWORK, supervised_evaluation
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.differs_from_reference import LAW as REF001
from rl_sentinel.laws.doubled_batch_changes_mean import LAW as SPL003
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005

WORKER = """
    import torch

    class PolicyWorkerBase:
        @torch.no_grad()
        def forward(self, data, loss_fn=None, loss_fn_config=None):
            self.model.MODE()
            losses = []
            for own in data.chunk(self.cfg.micro_forward_batch_size_per_gpu):
                tokens = own["sequences"].to(torch.cuda.current_device())
                logprob, _ = self.model(tokens, own.metadata["response_length"])
                losses.append(torch.where(own["loss_mask"] > 0, -logprob * own["loss_mask"], 0.0).sum().item())
            return {"loss": sum(losses) / DIVISOR}
"""

TRAINER = """
    class SFTTrainer:
        def run_eval(self):
            total, count = 0.0, 0
            for batch in self.eval_dataloader:
                tokens = int((batch["loss_mask"] > 0).sum())
                weight = WEIGHT
                total += self.dispatch.forward("policy", batch, loss_fn="cross_entropy")["loss"] * weight
                count += weight
            return {"eval_loss": total / max(count, 1)}, len(self.eval_dataloader)
"""


def _bound(loads: Loads, divisor: str = "1", weight: str = "tokens", mode: str = "eval") -> tuple[Target, Boundary]:
    files = {
        "skyrl/train/dataset/collators.py": COLLATORS.replace("COUNT", "mask.sum().clamp(min=1)"),
        "skyrl/backends/skyrl_train/workers/worker.py": WORKER.replace("DIVISOR", divisor).replace("MODE", mode),
        "skyrl/train/sft_trainer.py": TRAINER.replace("WEIGHT", weight),
    }
    target = loads(FRAMEWORK, {**FILES, **files})
    bound = the_bound(supervised_evaluation.boundaries(target))
    return target, bound


@pytest.mark.parametrize("setting", ["one batch", "last batch padded"])
def test_by_hand(loads: Loads, setting: str) -> None:
    """The mean over the four trained tokens of three responses."""
    target, bound = _bound(loads)
    check_round_trips(target, [bound])
    mask = torch.tensor([[True, False, True], [True, False, False], [True, False, False]])
    logprob = torch.tensor([[-1.0, -8.0, -2.0], [-6.0, 0.0, 0.0], [-3.0, 0.0, 0.0]])
    batch = batch_of(mask, logprob=logprob, length=torch.tensor([3, 1, 1]))
    assert outputs_of(target, bound, setting, batch)["evaluation loss"].item() == pytest.approx(3)


CASES: list[tuple[Law, str, dict[str, str]]] = [
    (MET005, "one batch", {"divisor": "len(losses)"}),
    (REF001, "last batch padded", {"weight": "1"}),
    (SPL003, "last batch padded", {"weight": "len(batch['loss_mask'])"}),
    (REF001, "one batch", {"mode": "train"}),
]


@pytest.mark.parametrize(("law", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(loads: Loads, law: Law, setting: str, broken: dict[str, str], found: bool) -> None:
    """A mean over micro-batches of sums, means over batches that are not weighted by their tokens, and dropout."""
    target, bound = _bound(loads, **(broken if found else {}))
    check_verdict(law, bound, setting, target, found=found)
