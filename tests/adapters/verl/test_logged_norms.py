"""The gradient norms that verl's workers log, on specimens of actor and critic in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict
from adapters.kit.round_trip import check_round_trips
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.worker_specimen import worker_files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, logged_norms
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

WORKER = """
    import torch

    class KIND:
        def __init__(self, config, model, optimizer):
            self.config, self.ROLE_module, self.ROLE_optimizer = config, model, optimizer

        def UPDATE(self, data):
            logged, norms = {}, []
            for first in range(0, len(data), self.config.ppo_mini_batch_size):
                rows = slice(first, first + self.config.ppo_mini_batch_size)
                ids, kept = data.batch["input_ids"][rows], data.batch["response_mask"][rows]
                self.ROLE_optimizer.zero_grad()
                LOSS.backward()
                norms.append(torch.nn.utils.clip_grad_norm_(self.ROLE_module.parameters(), 1.0).item())
                self.ROLE_optimizer.step()
                logged["ROLE/grad_norm"] = KEPT
            return logged
"""


def _bound(loads: Loads, kept: str, metric: str = "grad_norm") -> tuple[Target, list[Boundary]]:
    tree = worker_files(WORKER, {"KEPT": kept, "grad_norm": metric}, epochs=2)
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    return target, [b for b in logged_norms.boundaries(target) if isinstance(b, Boundary)]


def test_reads_back(loads: Loads) -> None:
    """Columns and arguments survive the round trip."""
    target, found = _bound(loads, "norms")
    assert [boundary.path.rpartition(".")[2] for boundary in found] == ["update_policy", "update_critic"]
    check_round_trips(target, found)


@pytest.mark.parametrize(
    ("kept", "sound"),
    [
        ("norms", True),
        ("norms[-1:]", False),  # of the last mini-batch
        ("norms[-1]", False),
        ("norms + norms[:1]", False),
        ("[sum(norms)]", False),
    ],
)
def test_norms_of_all_mini_batches(loads: Loads, kept: str, sound: bool) -> None:
    target, found = _bound(loads, kept)
    for boundary in found:
        check_verdict(DAT002, boundary, "two mini-batches", target, found=not sound)


def test_workers_that_log_no_norm(loads: Loads) -> None:
    """Have no such boundary."""
    assert not _bound(loads, "norms", "norm")[1]
