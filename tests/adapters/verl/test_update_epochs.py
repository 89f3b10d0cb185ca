"""The passes of an update's epochs, on specimens of verl's actor and critic in words of our own."""

import pytest

from adapters.checks import Loads, judged_at
from adapters.kit.round_trip import check_calls
from adapters.verl.omegaconf_specimen import OMEGACONF
from adapters.verl.worker_specimen import worker_files
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import FRAMEWORK, update_epochs
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

WORKER = """
    class KIND:
        def __init__(self, config, model, optimizer):
            self.config, self.ROLE_module, self.ROLE_optimizer = config, model, optimizer

        def UPDATE(self, data):
            size = self.config.ppo_mini_batch_size
            for epoch in range(EPOCHS):
                for first in range(0, len(data) ENDS, size):
                    ids = data.batch["input_ids"][first : first + size]
                    kept = data.batch["response_mask"][first : first + size]
                    self.ROLE_optimizer.zero_grad()
                    LOSS.backward()
                    self.ROLE_optimizer.step()
            return {}
"""


def _bound(loads: Loads, epochs: str = "self.config.ppo_epochs", ends: str = "") -> tuple[Target, list[Boundary]]:
    tree = worker_files(WORKER, {"EPOCHS": epochs, "ENDS": ends}, epochs=3)
    target = loads(FRAMEWORK, tree, {"omegaconf/__init__.py": OMEGACONF})
    return target, [b for b in update_epochs.boundaries(target) if isinstance(b, Boundary)]


def test_answers_and_reads_back(loads: Loads) -> None:
    target, found = _bound(loads)
    assert [boundary.path.rpartition(".")[2] for boundary in found] == ["update_policy", "update_critic"]
    check_calls(target, found)


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        ({}, set()),
        ({"epochs": "1"}, {"two epochs"}),
        ({"epochs": "max(1, self.config.ppo_epochs - 1)"}, {"two epochs"}),
        ({"epochs": "self.config.ppo_epochs + 1"}, {"one epoch", "two epochs"}),
        ({"ends": "- size * epoch"}, {"two epochs"}),
        ({"ends": "- size"}, {"one epoch", "two epochs"}),
    ],
)
def test_passes_of_each_row(loads: Loads, broken: dict[str, str], where: set[str]) -> None:
    """One pass per row and epoch: not fewer epochs, not more, and no mini-batch left out."""
    target, found = _bound(loads, **broken)
    for boundary in found:
        judgements = {setting: judged_at(DAT002, boundary, setting, target) for setting in boundary.settings}
        assert all(judgement.tried for judgement in judgements.values())
        assert {setting for setting, judgement in judgements.items() if judgement.found is not None} == where
