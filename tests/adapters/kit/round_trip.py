"""Every call can be read back: columns, settings, and the arguments built from them again."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.execution import evaluate, execute, inputs_of
from rl_sentinel.adapters.kit.observation import Observed, observe
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import COLUMNS, Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Step
from rl_sentinel.core.call import same_value
from rl_sentinel.core.case import Case
from rl_sentinel.core.codec import Codec, Form, Inputs
from rl_sentinel.core.errors import NotApplicable
from rl_sentinel.core.layout import Axis, Layout
from rl_sentinel.search.random_cases import random_cases
from rl_sentinel.search.small_cases import small_cases

#: Layout field that arguments can follow -> a layout in which it differs.
LAYOUTS: Mapping[Axis, Layout] = {
    "extra": Layout(extra=2),
    "dtype": Layout(dtype="float64"),
    "micro_batches": Layout(micro_batches=2),
}

#: An argument of a step.
Argument = tuple[str, str]


@dataclass
class Checked:
    """What was compared: columns that were read back from an argument, and arguments that were built again."""

    columns: set[tuple[str, str, str]] = field(default_factory=set)
    arguments: set[Argument] = field(default_factory=set)
    knobs: int = 0


class _AllReadError(Exception):
    """All calls were read: the last one need not run."""


def check_round_trip(target: Target, boundary: Boundary) -> Checked:
    """Hold ``observe(encode(c)) == canonical(c)`` and ``encode(observe(call)) == call`` on small and random cases.

    Every column of every argument is read back, and every argument is built again, but for what its codec declares to
    be unreadable: that column must change the argument.
    """
    done = Checked()
    for setting in boundary.settings:
        for case in small_cases(setting) + random_cases(5, 4, setting):
            for layout in (Layout(), *(LAYOUTS[axis] for axis in sorted(boundary.axes))):
                _case(target, boundary, replace(case, layout=layout), done)
    for step in boundary.steps:
        for name, codec in step.arguments.items():
            where = (step.result, name)
            read = {column for *argument, column in done.columns if tuple(argument) == where}
            missing = codec.columns - set(codec.unreadable) - read
            assert not missing, (boundary.path, where, "never read back", missing)
            assert codec.unreadable or where in done.arguments, (boundary.path, where, "never built again")
    return done


def _case(target: Target, boundary: Boundary, case: Case, done: Checked) -> None:
    inputs = inputs_of(boundary, case)
    calls: list[tuple[Step, Observed | Exception, dict[str, Any]]] = []

    def before(step: Step, passed: dict[str, Any], left: dict[str, Any]) -> None:
        calls.append((step, _read(step, passed), dict(left)))  # read at once: the target may change what it is passed
        if len(calls) == len(boundary.steps):
            raise _AllReadError

    try:
        execute(target, boundary, inputs, before)
    except NotApplicable:
        return
    except Exception:  # _AllReadError, or a failure of the target
        if not calls:
            raise
    for step, observed, left in calls:
        if isinstance(observed, Exception):
            raise observed
        _check_columns(boundary, case, step, observed, done)
        _check_knobs(boundary, inputs, observed, done)
        _check_arguments(target, boundary, inputs, step, left, done)
        _check_unreadable(target, boundary, inputs, step, left)


def _read(step: Step, passed: dict[str, Any]) -> Observed | Exception:
    try:
        return observe(step, passed)
    except Exception as error:  # noqa: BLE001 - raised again, apart from what the target raises
        return error


def _check_columns(boundary: Boundary, case: Case, step: Step, observed: Observed, done: Checked) -> None:
    """Columns that were read back equal those of the case, without what the codec loses."""
    for argument, codec in step.arguments.items():
        if observed.lengths_assumed and _follows_lengths(codec):
            done.columns |= {(step.result, argument, name) for name in codec.columns & set(observed.columns)}
            continue  # where the last token is, this call does not say; its arguments are built again below
        wanted, read = codec.canonical(case.batch), codec.canonical(observed.batch()) if codec.columns else {}
        for name in set(wanted) & set(observed.columns):
            assert _same_numbers(read[name], wanted[name]), (boundary.path, argument, name, read[name], wanted[name])
            done.columns.add((step.result, argument, name))


def _follows_lengths(codec: Codec) -> bool:
    form = getattr(codec, "form", None)
    return bool(codec.shapes) or (isinstance(form, Form) and "length" in form.needs)


def _same_numbers(read: Tensor, wanted: Tensor) -> bool:
    width = min(read.shape[1], wanted.shape[1]) if read.dim() > 1 else None
    a, b = (x if width is None else x[:, :width] for x in (read, wanted))
    return torch.equal(a.double().nan_to_num(7.0), b.double().nan_to_num(7.0))


def _check_knobs(boundary: Boundary, inputs: Inputs, observed: Observed, done: Checked) -> None:
    """Settings that were read back are those of the case."""
    for name, value in observed.knobs.items():
        if name in inputs.settings:
            assert value == inputs.settings[name], (boundary.path, name, value, inputs.settings[name])
            done.knobs += 1


def _check_arguments(  # noqa: PLR0913 - what a call is made of
    target: Target, boundary: Boundary, inputs: Inputs, step: Step, left: dict[str, Any], done: Checked
) -> None:
    """Arguments built from what was read back equal those that were passed."""
    labels = {  # another spelling of labels is a declared loss: calls are compared with labels in canonical spelling
        name: column
        for codec in step.arguments.values()
        for name, column in codec.canonical(inputs.batch).items()
        if COLUMNS[name]["role"] == "label" and COLUMNS[name]["axes"] == "B"
    }
    passed = replace(inputs, batch=with_columns(inputs.batch, **labels), leaves=[])
    first = {name: evaluate(target, codec.put(passed), left) for name, codec in step.arguments.items()}
    observed = observe(step, first)
    batch = observed.batch() if observed.columns else inputs.batch
    # The width and the dtype of the columns that were read hold those of the layout already.
    layout = replace(inputs.layout, extra=observed.layout.extra, dtype="")
    again = replace(passed, batch=batch, layout=layout, settings={**inputs.settings, **observed.knobs})
    for name, codec in step.arguments.items():
        if codec.columns <= set(observed.columns):
            value = evaluate(target, codec.put(again), left)
            assert same_value(value, first[name]), (boundary.path, name, value, first[name])
            done.arguments.add((step.result, name))


def _check_unreadable(target: Target, boundary: Boundary, inputs: Inputs, step: Step, left: dict[str, Any]) -> None:
    """A column that is declared to be unreadable counts: another one gives another argument."""
    for name, codec in step.arguments.items():
        for column in codec.unreadable:
            one, other = (
                evaluate(target, codec.put(replace(inputs, batch=batch)), left)
                for batch in (inputs.batch, _changed(inputs.batch, column))
            )
            assert not same_value(one, other), (boundary.path, name, column)


def _changed(batch: Batch, column: str) -> Batch:
    before: Tensor = getattr(batch, column)
    return with_columns(batch, **{column: ~before if before.dtype == torch.bool else before + 1})
