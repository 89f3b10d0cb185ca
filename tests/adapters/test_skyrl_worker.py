"""SkyRL's policy worker, on a specimen of its call shapes in words of our own."""

import pytest

from adapters.checks import Loads, answering, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.skyrl_worker_specimen import FILES
from rl_sentinel.adapters.skyrl import FRAMEWORK, worker
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.laws.metric_depends_on_split import LAW as MET005
from rl_sentinel.laws.metric_fits_no_definition import LAW as MET001
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW as SPL001
from rl_sentinel.laws.tokens_or_samples_lost import LAW as PLC004

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


def _bound(
    loads: Loads,
    parts: str = "1",
    weight: str = "sum(n for _, n in parts).clamp(min=1)",
    cut: str = "len(row) - count :",
) -> tuple[Target, dict[tuple[str, str], Boundary]]:
    source = WORKER.replace("PARTS", parts).replace("WEIGHT", weight).replace("SLICE", cut)
    target = loads(FRAMEWORK, {**FILES, "skyrl/backends/skyrl_train/workers/worker.py": source})
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
    loads: Loads, law: Law, stage: str, setting: str, broken: dict[str, str], found: bool
) -> None:
    """A sum divided again, a token too many, a mean that depends on micro-batches, a response cut off at its end."""
    target, boundaries = _bound(loads, **(broken if found else {}))
    check_verdict(law, boundaries[stage, setting], setting, target, found=found)
