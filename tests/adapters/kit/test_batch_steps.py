"""Steps that call a function of ours with the whole batch."""

from pathlib import Path

import torch

from rl_sentinel.adapters.kit.batch_steps import batch_step, by_name
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Case


def test_the_function_gets_the_batch_and_all_settings() -> None:
    """Outputs come back by name; one that is not returned is None."""
    boundary = Boundary(
        path="twice",
        stage="advantage",
        steps=(batch_step(lambda b, s: {"double": b.reward * int(s["factor"] or 0)}, frozenset({"reward"})),),
        outputs=by_name({"double": Output("B"), "absent": Output("B")}),
        settings={"default": {"factor": 2}},
    )
    case = Case(batch_of(torch.ones(2, 1).bool(), reward=torch.tensor([1.0, 3.0])))
    run = execute(Target(Path("/nowhere")), boundary, inputs_of(boundary, case))
    assert boundary.reads == {"reward"}
    assert run.values["double"].tolist() == [2.0, 6.0]
    assert run.values["absent"] is None
