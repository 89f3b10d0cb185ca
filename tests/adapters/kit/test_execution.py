"""Calls of a description: pipelines, cuts and their joins, inner points, shared and remembered values, leaves."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from adapters.checks import Loads
from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.execution import InnerCall, encode, execute, inputs_of
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.value_codecs import Constant, Earlier, IfSet, Knob
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary, Join, Output, Step
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import NotApplicable
from rl_sentinel.core.layout import Layout

NOTHING = Framework(name="made", package="made", boundaries=lambda _target: iter(()))

FILES = {
    "made/__init__.py": "",
    "made/code.py": """
        made = []

        class Config:
            def __init__(self, factor):
                made.append(factor)
                self.factor = factor

        def scale(rewards, config):
            return {"scaled": rewards * config.factor}

        def center(rewards, table):
            table["out"] = rewards - rewards.mean()

        def inner(x):
            return x * 2

        def outer(x):
            return inner(x + 1) + 1

        def count(x):
            made.append("counted")
            return x.clone()

        def learn(x):
            (3 * x).sum().backward()
            return x.detach().sum() * 3
    """,
}

BATCH = batch_of(
    torch.ones(3, 2).bool(),
    reward=torch.tensor([1.0, 2.0, 6.0]),
    logprob=torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
)


def _boundary(*steps: Step, **outputs: Output) -> Boundary:
    return Boundary(path="made", stage="advantage", steps=steps, outputs=outputs, settings={"default": {"factor": 10}})


def _run(target: Target, boundary: Boundary, **layout: int) -> dict[str, torch.Tensor]:
    case = Case(BATCH, layout=Layout(**layout))  # type: ignore[arg-type]  # numbers of the layout
    return execute(target, boundary, inputs_of(boundary, case)).values


CONFIG = Object("made.code.Config", {"factor": Knob("factor")}, shared=True)
SCALE = Step(call="made.code.scale", name="first", arguments={"rewards": Column("reward"), "config": CONFIG})
CENTER = Step(call="made.code.center", arguments={"rewards": Earlier(Use("first")["scaled"]), "table": Table({})})


def test_a_later_step_uses_an_earlier_result(loads: Loads) -> None:
    """1, 2, 6 become 10, 20, 60 and then -20, -10, 30, left in a table that was passed."""
    target = loads(NOTHING, FILES)
    boundary = _boundary(SCALE, CENTER, advantage=Output("B", at=Use("table")["out"]))
    assert _run(target, boundary)["advantage"].tolist() == [-20, -10, 30]


def test_a_setting_that_the_case_lacks_is_not_passed(loads: Loads) -> None:
    """The target's own default must count, not None."""
    step = Step(
        call=lambda rewards, factor=2.0: rewards * factor,
        name="scaled",
        arguments={"rewards": Column("reward"), "factor": IfSet("factor")},
    )
    boundary = _boundary(step, reward=Output("B", at=Use("scaled")))
    target = loads(NOTHING, FILES)
    assert _run(target, boundary)["reward"].tolist() == [10, 20, 60]
    unset = replace(boundary, settings={"default": {}})
    assert _run(target, unset)["reward"].tolist() == [2, 4, 12]


def test_a_shared_object_is_made_once(loads: Loads) -> None:
    """A run has one configuration for all its steps."""
    target = loads(NOTHING, FILES)
    boundary = _boundary(SCALE, reward=Output("B", at=Use("first")["scaled"]))
    _run(target, boundary)
    _run(target, boundary)
    assert target.find("made.code.made") == [10]


def test_a_remembered_step_runs_once_for_equal_arguments(loads: Loads) -> None:
    """Each caller gets a copy."""
    target = loads(NOTHING, FILES)
    step = Step(call="made.code.count", name="x", arguments={"x": Column("reward")}, remembered=True)
    boundary = _boundary(step, reward=Output("B", at=Use("x")))
    first = _run(target, boundary)["reward"]
    first += 100
    assert _run(target, boundary)["reward"].tolist() == [1, 2, 6]
    assert target.find("made.code.made") == ["counted"]


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.flip(0)[::2], lambda x: [x]], ids=["plain", "view", "list"])
def test_a_later_step_cannot_change_a_remembered_result(loads: Loads, view: Callable[[torch.Tensor], Any]) -> None:
    def add(y: Any) -> torch.Tensor:
        tensor: torch.Tensor = y[0] if isinstance(y, list) else y
        return tensor.add_(100)

    target, seen = loads(NOTHING, FILES), list[list[float]]()
    first = Step(call=view, name="y", arguments={"x": Column("reward")}, remembered=True)
    boundary = _boundary(
        first, Step(call=add, name="z", arguments={"y": Earlier(Use("y"))}), loss=Output("B", at=Use("z"))
    )
    for _ in range(2):
        seen.append(_run(target, boundary)["loss"].tolist())
    assert seen[0] == seen[1]


@pytest.mark.parametrize(("join", "expected"), [("sum", 12.0), ("mean", 6.0), ("last", 8.0)])
def test_results_of_cuts_are_joined(loads: Loads, join: Join, expected: float) -> None:
    """Two cuts, rows 0 and 1, then row 2: their last rewards plus 2 are 4 and 8."""
    step = Step(
        call=lambda x, extra: x[-1] + extra,
        name="last",
        arguments={"x": Column("reward"), "extra": Constant(2)},
        each=("micro_batch",),
    )
    boundary = _boundary(step, loss=Output("", at=Use("last"), join=join))
    assert _run(loads(NOTHING, FILES), boundary, micro_batches=2)["loss"].item() == expected
    assert boundary.axes >= {"micro_batches"}


def test_cuts_are_added_and_ranks_averaged(loads: Loads) -> None:
    """Cuts of three rows in four parts: all added, and divided by the two ranks."""
    step = Step(call=lambda x: x.sum(), name="x", arguments={"x": Column("reward")}, each=("rank", "micro_batch"))
    boundary = _boundary(step, loss=Output("", at=Use("x"), join="rank-mean"))
    assert boundary.axes >= {"micro_batches", "ranks"}
    found = _run(loads(NOTHING, FILES), boundary, micro_batches=2, ranks=2)["loss"]
    assert found.item() == float(BATCH.reward.sum()) / 2


def _nothing(x: torch.Tensor) -> torch.Tensor:
    return x * 0


def test_a_fake_stands_for_a_function_while_the_step_runs(loads: Loads) -> None:
    """The function is back afterwards."""
    target = loads(NOTHING, FILES)
    original = target.find("made.code.inner")
    step = Step(
        call="made.code.outer",
        name="out",
        arguments={"x": Column("reward")},
        inside={"seen": "made.code.inner"},
        fakes={"made.code.inner": _nothing},
    )
    boundary = _boundary(step, value=Output("B", at=Use("seen").attribute("result")))
    assert _run(target, boundary)["value"].tolist() == [0, 0, 0]
    assert target.find("made.code.inner") is original


def test_rows_of_cuts_are_put_in_order(loads: Loads) -> None:
    """Ranks and micro-batches multiply: four cuts of three rows, the last one empty."""
    step = Step(call="made.code.count", name="x", arguments={"x": Column("reward")}, each=("rank", "micro_batch"))
    boundary = _boundary(step, reward=Output("B", at=Use("x"), join="rows"))
    assert _run(loads(NOTHING, FILES), boundary, micro_batches=2, ranks=2)["reward"].tolist() == [1, 2, 6]


def test_an_inner_call_is_kept_and_the_function_put_back(loads: Loads) -> None:
    """Its argument is x + 1, its result twice that."""
    target = loads(NOTHING, FILES)
    original = target.find("made.code.inner")
    step = Step(
        call="made.code.outer", name="out", arguments={"x": Column("reward")}, inside={"seen": "made.code.inner"}
    )
    boundary = _boundary(step, value=Output("B", at=Use("seen").attribute("result")))
    run = execute(target, boundary, inputs_of(boundary, Case(BATCH)))
    inner = run.results["seen"]
    assert isinstance(inner, InnerCall)
    assert inner.arguments["x"].tolist() == [2, 3, 7]
    assert run.values["value"].tolist() == [4, 6, 14]
    assert target.module("made.code").inner is original


def test_a_leaf_returns_the_gradient_of_the_targets_own_backward(loads: Loads) -> None:
    """3 for each log-prob."""
    step = Step(call="made.code.learn", name="loss", arguments={"x": Column("logprob", Padded(), leaf=True)})
    boundary = _boundary(step, loss=Output("", at=Use("loss")))
    column = BATCH.logprob.clone().requires_grad_()
    batch = batch_of(BATCH.mask, logprob=column)
    loss = execute(loads(NOTHING, FILES), boundary, inputs_of(boundary, Case(batch))).values["loss"]
    assert loss.item() == 63.0
    (slope,) = torch.autograd.grad(loss, [column])
    assert slope.tolist() == [[3, 3], [3, 3], [3, 3]]


def test_a_condition_of_the_trainer_is_not_applicable(loads: Loads) -> None:
    """With its reason, before anything is called."""
    boundary = Boundary(
        path="made", stage="advantage", steps=(SCALE,), outputs={}, requires=(lambda _inputs: "no such trainer",)
    )
    with pytest.raises(NotApplicable, match=r"^no such trainer$"):
        encode(boundary, inputs_of(boundary, Case(BATCH)))
    assert loads(NOTHING, FILES).find("made.code.made") == []


def test_an_exception_is_explained_with_what_was_passed(loads: Loads) -> None:
    """By the step that has the words."""
    step = Step(
        call="made.code.outer",
        arguments={"x": Constant("text")},
        explain=lambda error, passed: ValueError(f"{type(error).__name__} for {passed['x']}"),
    )
    boundary = _boundary(step)
    with pytest.raises(ValueError, match=r"^TypeError for text$"):
        _run(loads(NOTHING, FILES), boundary)
