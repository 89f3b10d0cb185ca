"""Functions of a script: what differs between runs is a parameter, and runs of another boundary have their own."""

from dataclasses import replace

import pytest
import torch

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.execution import encode, inputs_of
from rl_sentinel.audit.repro.call_source import Source
from rl_sentinel.audit.repro.literal import Unwritable
from rl_sentinel.audit.repro.recorded_run import Run
from rl_sentinel.audit.repro.run_functions import run_functions
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary, Output, Step
from rl_sentinel.core.case import Case

NEGATED = Boundary(
    path="torch.neg",
    stage="advantage",
    steps=(Step(call="torch.neg", name="result", arguments={"input": Column("reward")}),),
    outputs={"advantage": Output("B", "reward", "advantage")},
    settings={"default": {}},
)


def _run(boundary: Boundary, reward: float) -> Run:
    case = Case(batch_of(torch.tensor([[True]]), reward=torch.tensor([reward])))
    return Run(boundary, case, encode(boundary, inputs_of(boundary, case)))


def test_runs_of_a_boundary_share_a_function() -> None:
    text = Source()
    functions = run_functions(text, [_run(NEGATED, 1.0), _run(NEGATED, 2.0)], ("advantage",))
    assert functions.body[0] == "def run(input):"
    assert [("1.0" in call, "2.0" in call) for call in functions.calls] == [(True, False), (False, True)]
    namespace: dict[str, object] = {}
    exec("\n".join([*text.names.imports, *functions.body]), namespace)  # noqa: S102 - the source that is tested
    assert [eval(call, namespace)["advantage"].tolist() for call in functions.calls] == [[-1.0], [-2.0]]  # noqa: S307


def test_each_boundary_has_a_function() -> None:
    other = replace(NEGATED, path="torch.abs", steps=(replace(NEGATED.steps[0], call="torch.abs"),))
    functions = run_functions(Source(), [_run(other, -1.0), _run(NEGATED, 1.0)], ())
    assert [call.partition("(")[0] for call in functions.calls] == ["run_0", "run_1"]


def test_a_boundary_without_calls() -> None:
    run = replace(_run(NEGATED, 1.0), calls=[])
    with pytest.raises(Unwritable, match="the boundary calls no function"):
        run_functions(Source(), [run], ())
