"""Where a compared tensor stands among the outputs of runs."""

import torch

from rl_sentinel.audit.repro.matching_outputs import matching_views
from rl_sentinel.audit.repro.provenance import View
from rl_sentinel.audit.repro.recorded_run import Run
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.case import Case
from rl_sentinel.core.expectations import Pair
from rl_sentinel.core.observation import Observation
from specimens import specimen

WHOLE = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def _nothing(batch: Batch) -> torch.Tensor:
    return batch.mask.float()


def _run(value: torch.Tensor) -> Run:
    case = Case(batch_of(torch.ones(value.shape, dtype=torch.bool)))
    return Run(specimen(_nothing, reads="mask"), case, [], Observation({"x": value}))


def test_rows_and_positions_of_another_run() -> None:
    """Rows are found in any order, and a narrower tensor at the first positions."""
    fewer = WHOLE[[2, 0]]
    assert matching_views(Pair("x", WHOLE[[2, 0]], fewer + 10), [_run(WHOLE), _run(fewer + 10)], None, None) == (
        View(0, "[[2, 0]]"),
        View(1),
    )
    narrow = WHOLE[:, :1]
    assert matching_views(Pair("x", None, narrow), [_run(WHOLE)], None, None) == (None, View(0, "[:, :1]"))


def test_what_no_run_holds() -> None:
    """An observed tensor that no run gave has no place; an expected one is written as numbers."""
    assert matching_views(Pair("x", None, WHOLE + 1), [_run(WHOLE)], None, None) is None
    assert matching_views(Pair("x", WHOLE + 1, WHOLE), [_run(WHOLE)], None, None) == (None, View(0))
