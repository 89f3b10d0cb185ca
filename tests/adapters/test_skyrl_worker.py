"""SkyRL's policy worker, on a specimen of its call shapes in words of our own."""

from collections.abc import Callable

import pytest

from adapters.checks import answering, judged_at
from adapters.kit.round_trip import check_round_trips
from adapters.test_skyrl_rollout import PREPROCESS
from rl_sentinel.adapters.skyrl import FRAMEWORK, worker
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

Loads = Callable[..., Target]

CONFIG = """
    from types import SimpleNamespace

    def SkyRLTrainConfig():
        algorithm = SimpleNamespace(policy_loss_type="regular", loss_reduction="token_mean", use_kl_loss=False)
        trainer = SimpleNamespace(algorithm=algorithm, micro_train_batch_size_per_gpu=1)
        return SimpleNamespace(trainer=trainer)
"""

BATCH = """
    class TrainingInputBatch(dict):
        metadata = None

        @property
        def batch_size(self):
            return len(self["sequences"])
"""

LOSSES = """
    import torch

    class PolicyLossRegistry:
        @classmethod
        def list_available(cls):
            return ["regular"]

        @classmethod
        def get(cls, name):
            return regular

    def regular(log_probs, old_log_probs, advantages, loss_mask):
        ratio = torch.where(loss_mask > 0, log_probs - old_log_probs, 0.0).exp()
        return -torch.where(loss_mask > 0, ratio * advantages, 0.0).sum()

    def apply_loss_reduction_to_advantages_minibatch(
        advantages, loss_mask, loss_reduction, micro_batch_size, max_seq_len
    ):
        if loss_reduction == "token_mean":
            return advantages / loss_mask.sum()
        return advantages / loss_mask.sum(1, keepdim=True).clamp(min=1) / len(loss_mask)
"""

WORKER = """
    import torch

    def weighted(parts):
        return sum(x for x, _ in parts) / WEIGHT

    class PolicyWorkerBase:
        def forward_backward(self, data):
            device, size = torch.cuda.current_device(), self.cfg.micro_train_batch_size_per_gpu
            width, entropies, rows = data.metadata["response_length"], [], []
            for start in range(0, len(data["sequences"]), size):
                own = {k: None if v is None else v[start : start + size].to(device) for k, v in data.items()}
                mask = own["loss_mask"]
                log_probs, output = self.model(own["sequences"], width, return_output=True)
                loss = self.policy_loss_fn(log_probs, own["action_log_probs"], own["advantages"], mask)
                self.strategy.backward(loss / PARTS, self.model, self.optimizer)
                entropy = output["entropy"][:, -width - 1 : -1]
                entropies.append((torch.where(mask > 0, entropy, 0.0).sum(), mask.sum()))
                for row, count in zip(log_probs, own["response_mask"].sum(1).tolist()):
                    rows.append({"logprobs": row[SLICE].tolist()})
            return {"policy_entropy": weighted(entropies).item(), "loss_fn_outputs": rows}
"""

TRAINER = """
    class RayPPOTrainer:
        def compute_advantages_and_returns(self, data): return data
"""


def _bound(
    loads: Loads,
    parts: str = "1",
    weight: str = "sum(n for _, n in parts).clamp(min=1)",
    cut: str = "len(row) - count :",
) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    source = WORKER.replace("PARTS", parts).replace("WEIGHT", weight).replace("SLICE", cut)
    files = {
        "skyrl/backends/__init__.py": "raise RuntimeError('an engine was started')",
        "skyrl/backends/skyrl_train/training_batch.py": BATCH,
        "skyrl/backends/skyrl_train/utils/ppo_utils.py": LOSSES,
        "skyrl/backends/skyrl_train/workers/worker.py": source,
        "skyrl/train/config.py": CONFIG,
        "skyrl/train/dataset/preprocess.py": PREPROCESS,
        "skyrl/train/trainer.py": TRAINER,
    }
    target = loads(FRAMEWORK, files)
    made = [one for one in worker.boundaries(target) if isinstance(one, Boundary)]
    return target, {(one.stage, next(iter(one.settings))): one for one in made}


def test_all_boundaries_answer(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    assert len(boundaries) == 6
    assert answering(boundaries, target) == []


@pytest.mark.slow
def test_round_trips(loads: Loads) -> None:
    target, boundaries = _bound(loads)
    check_round_trips(target, boundaries.values())


CASES: list[tuple[Law, str, str, dict[str, str]]] = [
    (SPL001, "policy-loss", "alone, token_mean", {"parts": "(len(data['sequences']) // size)"}),
    (MET001, "metric", "metrics", {"weight": "(sum(n for _, n in parts) + 1)"}),
    (MET005, "metric", "metrics", {"weight": "sum(n for _, n in parts).clamp(min=1) / len(parts)"}),
    (PLC004, "batch", "outputs", {"cut": ": count"}),
]


@pytest.mark.parametrize(("law", "stage", "setting", "broken"), CASES)
@pytest.mark.parametrize("found", [False, True])
def test_found_where_broken_alone(  # noqa: PLR0913 - parametrised
    loads: Loads,
    law: Law,
    stage: str,
    setting: str,
    broken: dict[str, str],
    found: bool,  # noqa: FBT001 - parametrised
) -> None:
    """A sum divided again, a token too many, a mean that depends on micro-batches, a response cut off at its end."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    judgement = judged_at(law, boundaries[stage, setting], setting, target)
    assert judgement.tried > 0
    assert (judgement.found is not None) is found
