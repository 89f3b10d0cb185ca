"""Every call can be read back: columns, settings, and the arguments built from them again."""

import contextlib
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch

from rl_sentinel.adapters.kit.execution import Left, evaluate, execute, inputs_of
from rl_sentinel.adapters.kit.observation import Observed, observe
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import COLUMNS, with_columns
from rl_sentinel.core.boundary import Boundary, Step
from rl_sentinel.core.call import same_value
from rl_sentinel.core.case import Case
from rl_sentinel.core.codec import Form
from rl_sentinel.core.errors import NotApplicable
from rl_sentinel.core.layout import Layout
from rl_sentinel.search.random_cases import random_cases
from rl_sentinel.search.small_cases import small_cases


@dataclass(frozen=True)
class Checked:
    """How much was compared: columns that were read back, and arguments that were built again."""

    columns: int
    arguments: int


def layouts(boundary: Boundary) -> Iterator[Layout]:
    """The layouts that the boundary accepts, one change at a time."""
    yield Layout()
    if "extra" in boundary.axes:
        yield Layout(extra=2)
    if "dtype" in boundary.axes:
        yield Layout(dtype="float64")
    if "micro_batches" in boundary.axes:
        yield Layout(micro_batches=2)


def check_round_trip(target: Target, boundary: Boundary) -> Checked:
    """Hold ``observe(encode(c)) == canonical(c)`` and ``encode(observe(call)) == call`` on small and random cases."""
    columns = arguments = 0
    for setting in boundary.settings:
        for case in small_cases(setting) + random_cases(5, 4, setting):
            for layout in layouts(boundary):
                done = _case(target, boundary, replace(case, layout=layout))
                columns, arguments = columns + done.columns, arguments + done.arguments
    return Checked(columns, arguments)


def _case(target: Target, boundary: Boundary, case: Case) -> Checked:
    inputs = inputs_of(boundary, case)
    seen: list[tuple[Step, Observed, Left]] = []
    failures: list[Exception] = []

    def before(step: Step, arguments: dict[str, Any], left: Left) -> None:
        if step.each:
            return
        try:
            seen.append((step, observe(step, arguments), copy(left)))
        except Exception as error:  # noqa: BLE001 - told apart from what the target raises
            failures.append(error)

    with contextlib.suppress(NotApplicable, ValueError, AssertionError, ArithmeticError, NotImplementedError):
        execute(target, boundary, inputs, before)
    if failures:
        raise failures[0]
    columns = again = 0
    for step, observed, left in seen:
        columns += _check_columns(boundary, case, step, observed)
        again += _check_arguments(target, boundary, case, step, left)
    return Checked(columns, again)


def _check_columns(boundary: Boundary, case: Case, step: Step, observed: Observed) -> int:
    """Columns that were read back equal those of the case, without what the codec cannot carry."""
    read_back = 0
    for codec in step.arguments.values():
        form = getattr(codec, "form", None)
        if observed.full_rows and (codec.shapes or (isinstance(form, Form) and "length" in form.needs)):
            continue  # where the last token is, this call does not say; its arguments are built again below
        for name, wanted in codec.canonical(case.batch).items():
            if name not in observed.columns:
                continue
            read = observed.columns[name]
            width = min(read.shape[1], wanted.shape[1]) if read.dim() > 1 else None
            a, b = (read, wanted) if width is None else (read[:, :width], wanted[:, :width])
            where = (boundary.path, name, read, wanted)
            assert torch.equal(a.double().nan_to_num(7.0), b.double().nan_to_num(7.0)), where
            read_back += 1
    return read_back


def _check_arguments(target: Target, boundary: Boundary, case: Case, step: Step, left: Left) -> int:
    """Arguments built from what was read back equal those that were passed."""
    labels = {  # another spelling of labels is a declared loss: calls are compared with labels in canonical spelling
        name: column
        for codec in step.arguments.values()
        for name, column in codec.canonical(case.batch).items()
        if COLUMNS[name]["role"] == "label" and COLUMNS[name]["axes"] == "B"
    }
    inputs = inputs_of(boundary, case, with_columns(case.batch, **labels))
    first = {name: evaluate(target, codec.put(inputs), left) for name, codec in step.arguments.items()}
    observed = observe(step, first)
    if observed.sizes.rows is None or observed.sizes.width is None:
        return 0
    batch = observed.batch()
    layout = replace(inputs.layout, extra=0, dtype="")  # the width and the dtype that were read hold these already
    again = replace(inputs, batch=batch, layout=layout, settings={**inputs.settings, **observed.knobs})
    same = 0
    for name, codec in step.arguments.items():
        if codec.columns <= set(observed.columns) and codec.shapes <= {"length"} and batch.rows == case.batch.rows:
            value = evaluate(target, codec.put(again), left)
            assert same_value(value, first[name]), (boundary.path, name, value, first[name])
            same += 1
    return same
