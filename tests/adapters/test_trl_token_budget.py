"""TRL's planner of asynchronous micro-batches, on a specimen of it in words of our own."""

import pytest

from adapters.checks import Loads, check_verdict, the_only
from adapters.kit.round_trip import check_calls
from adapters.trl_async_specimen import files
from adapters.trl_specimen import filled, overlay
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import FRAMEWORK, token_budget
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.sample_lost_or_repeated import LAW as DAT002

NAME = "a budget for a few samples"

MODULE = """
    import torch

    class Row:
        def __init__(self):
            self.samples = []

        def size(self):
            return sum(len(one["input_ids"]) for one in self.samples)

        def pack(self):
            return {"input_ids": torch.cat([one["input_ids"] for one in self.samples])}

    class TokenBudgetBatcher:
        def __init__(self, dataset, num_processes, token_budget, metrics):
            self.dataset, self.ranks, self.budget = dataset, num_processes, token_budget

        def _place(self, rows, sample):
            room = [row for row in rows if {needs} <= self.budget]
            return min(room, key=Row.size, default=None)

        def __iter__(self):
            rows = [Row() for _ in range(self.ranks)]
            for sample in self.dataset:
                row = self._place(rows, sample)
                if row is None:
                    yield rows
                    rows = [Row() for _ in range(self.ranks)]
                    row = rows[0]
                    {opens}
                row.samples.append(sample)
"""

SOUND = {"needs": 'row.size() + len(sample["input_ids"])', "opens": "pass"}


def _bound(loads: Loads, **choices: str) -> tuple[Target, Boundary]:
    source = filled(MODULE, SOUND | choices)
    target = loads(FRAMEWORK, {**files(), "trl/experimental/async_grpo/async_grpo_trainer.py": source}, overlay())
    return target, the_only(token_budget.boundaries(target))


def test_answers_and_reads_back(loads: Loads) -> None:
    """Samples of any length are planned."""
    target, boundary = _bound(loads)
    check_calls(target, [boundary])


@pytest.mark.parametrize(
    ("choices", "found"),
    [
        ({}, False),
        ({"opens": "continue"}, True),  # the sample that closes a micro-batch is in none
        ({"opens": "rows[1].samples.append(sample)"}, True),  # it is in two rows
        ({"needs": "row.size()"}, True),  # a row exceeds the budget
    ],
)
def test_samples_of_micro_batches(loads: Loads, choices: dict[str, str], found: bool) -> None:
    """Each sample is in one row, and each row within its budget."""
    target, boundary = _bound(loads, **choices)
    check_verdict(DAT002, boundary, NAME, target, found=found)
