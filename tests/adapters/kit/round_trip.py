"""Every call can be read back: columns, settings, and the arguments built from them again."""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from adapters.checks import answering
from rl_sentinel.adapters.kit.evaluation import StepResults, evaluate
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.kit.observation import Observed, observe
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import COLUMNS, Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Step
from rl_sentinel.core.call import same_value
from rl_sentinel.core.case import Case, Scalar
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
    "ranks": Layout(ranks=2),
    "context": Layout(context=2),
}


@dataclass
class _Compared:
    """What was compared: columns by argument, arguments that were built again, settings by family."""

    columns: set[tuple[str, str, str]] = field(default_factory=set)
    arguments: set[tuple[str, str]] = field(default_factory=set)
    settings: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True)
class _Read:
    """A call as it was read: whole, and each part of its arguments alone."""

    step: Step
    observed: Observed
    parts: list[tuple[str, Codec, Mapping[str, Tensor]]]
    results: StepResults


class _AllReadError(Exception):
    """All calls were read: the last one need not run."""


def check_calls(target: Target, boundaries: Iterable[Boundary]) -> None:
    """Every boundary answers under each of its settings, and all its calls can be read back."""
    every = list({id(one): one for one in boundaries}.values())
    calls = {(f"{one.path} {n}", setting): one for n, one in enumerate(every) for setting in one.settings}
    assert answering(calls, target) == []
    check_round_trips(target, every)


def check_round_trips(target: Target, boundaries: Iterable[Boundary]) -> None:
    """Check every boundary once; one with several settings may be given several times."""
    for boundary in {id(one): one for one in boundaries}.values():
        check_round_trip(target, boundary)


def check_round_trip(target: Target, boundary: Boundary) -> None:
    """Hold ``observe(encode(c)) == canonical(c)`` and ``encode(observe(call)) == call`` on small and random cases.

    Every column of every argument and every setting is read back, and every argument is built again, but for what its
    codec declares to be unreadable: such a column must change the argument. Layouts, and settings after the first, meet
    every fourth case.
    """
    done = _Compared()
    repeated = any(step.each for step in boundary.steps)  # a call for a part of the rows reads back these alone
    layouts = [LAYOUTS[axis] for axis in sorted(boundary.axes - ({"micro_batches", "ranks"} if repeated else set()))]
    for number, setting in enumerate(boundary.settings):
        cases = small_cases(setting) + random_cases(5, 4, setting)
        varied = [replace(case, layout=layout) for case in cases[::4] for layout in layouts]
        for case in (cases[::4] if number else cases) + varied:
            _case(target, boundary, case, done)
        passed = _settings_passed(boundary, inputs_of(boundary, cases[0]))
        unread = {name for name in passed if (setting, name) not in done.settings}
        assert not unread, (boundary.path, setting, "settings never read back", unread)
    for step in boundary.steps:
        for name, codec in step.arguments.items():
            where = (step.result, name)
            missing = {c for c in codec.columns if c not in codec.unreadable and (*where, c) not in done.columns}
            assert not missing, (boundary.path, where, "columns never read back", missing)
            assert codec.unreadable or where in done.arguments, (boundary.path, where, "never built again")


def _case(target: Target, boundary: Boundary, case: Case, done: _Compared) -> None:
    inputs = inputs_of(boundary, case)
    calls: list[_Read | Exception] = []

    def before(step: Step, passed: dict[str, Any], results: StepResults) -> None:
        try:
            calls.append(_read(step, passed, results))  # at once: the target may change what it is passed
        except Exception as error:  # noqa: BLE001 - raised again, apart from what the target raises
            calls.append(error)
        if len(calls) == len(boundary.steps):
            raise _AllReadError

    try:
        execute(target, boundary, inputs, before)
    except NotApplicable:
        return
    except Exception:  # _AllReadError, or a failure of the target
        if not calls:
            raise
    for call in calls:
        if isinstance(call, Exception):
            raise call
        _check_columns(boundary, case, call, done)
        _check_settings(boundary, inputs, case.setting, call.observed, done)
        _check_arguments(target, boundary, inputs, call, done)
        _check_unreadable(target, boundary, inputs, call)


def _read(step: Step, passed: dict[str, Any], results: StepResults) -> _Read:
    observed = observe(step, passed)
    parts = [
        (name, part, part.take(value, observed.sizes))
        for name, codec in step.arguments.items()
        if codec.columns
        for part, value in codec.references(passed[name])
    ]
    return _Read(step, observed, parts, copy(results))


def _check_columns(boundary: Boundary, case: Case, call: _Read, done: _Compared) -> None:
    """Columns that were read back from a part equal those of the case, without what its codec loses."""
    observed = call.observed
    for argument, part, columns in call.parts:
        done.columns |= {(call.step.result, argument, name) for name in columns}
        if observed.lengths_assumed and _follows_lengths(part):
            continue  # where the last token is, this call does not say; its arguments are built again below
        wanted = part.canonical(case.batch)
        read = part.canonical(with_columns(observed.batch(), **columns))
        for name in columns:
            assert _same_numbers(read[name], wanted[name]), (boundary.path, argument, name, read[name], wanted[name])


def _follows_lengths(codec: Codec) -> bool:
    form = getattr(codec, "form", None)
    return bool(codec.shapes) or (isinstance(form, Form) and "length" in form.needs)


def _same_numbers(read: Tensor, wanted: Tensor) -> bool:
    width = min(read.shape[1], wanted.shape[1]) if read.dim() > 1 else None
    a, b = (x if width is None else x[:, :width] for x in (read, wanted))
    return torch.equal(a.double().nan_to_num(7.0), b.double().nan_to_num(7.0))


def _check_settings(boundary: Boundary, inputs: Inputs, family: str, observed: Observed, done: _Compared) -> None:
    """Settings that were read back are those of the case."""
    for name in set(observed.knobs) & set(inputs.settings):
        value, wanted = observed.knobs[name], inputs.settings[name]
        assert value == wanted, (boundary.path, name, value, wanted)
        done.settings.add((family, name))


def _settings_passed(boundary: Boundary, inputs: Inputs) -> set[str]:
    """The settings that change an argument; those of the layout are no settings of the target."""
    return {
        name
        for name in set(inputs.settings) - {f.name for f in fields(Layout)}
        for other in [replace(inputs, settings={**inputs.settings, name: _another(inputs.settings[name])})]
        if any(not same_value(codec.put(inputs), codec.put(other)) for codec in boundary.codecs())
    }


def _another(value: Scalar) -> Scalar:
    if isinstance(value, bool):
        return not value
    return f"{value}0" if isinstance(value, str) else (value or 0) + 1


def _check_arguments(target: Target, boundary: Boundary, inputs: Inputs, call: _Read, done: _Compared) -> None:
    """Arguments built from what was read back equal those that were passed."""
    step, observed, results = call.step, call.observed, call.results
    labels = {  # another spelling of labels is a declared loss: calls are compared with labels in canonical spelling
        name: column
        for codec in step.arguments.values()
        for name, column in codec.canonical(inputs.batch).items()
        if COLUMNS[name]["role"] == "label" and COLUMNS[name]["axes"] == "B"
    }
    passed = replace(inputs, batch=with_columns(inputs.batch, **labels), leaves=[])
    first = {name: evaluate(target, codec.put(passed), results) for name, codec in step.arguments.items()}
    if not all(torch.equal(column, getattr(inputs.batch, name)) for name, column in labels.items()):
        observed = observe(step, first)
    batch = observed.batch() if observed.columns else inputs.batch
    # The width and the dtype of the columns that were read hold those of the layout already.
    layout = replace(inputs.layout, extra=observed.layout.extra, dtype="")
    again = replace(passed, batch=batch, layout=layout, settings={**inputs.settings, **observed.knobs})
    for name, codec in step.arguments.items():
        if codec.columns <= set(observed.columns):
            value = evaluate(target, codec.put(again), results)
            assert same_value(value, first[name]), (boundary.path, name, value, first[name])
            done.arguments.add((step.result, name))


def _check_unreadable(target: Target, boundary: Boundary, inputs: Inputs, call: _Read) -> None:
    """A column that is declared to be unreadable counts: another one gives another argument."""
    for name, codec in call.step.arguments.items():
        for column in codec.unreadable:
            if column == "group" and (inputs.batch.rows == 1 or not bool(inputs.batch.live.all())):
                continue  # other groups of one row, or of rows without a token, may have the same sums
            one, other = (
                evaluate(target, codec.put(replace(inputs, batch=batch)), call.results)
                for batch in (inputs.batch, _changed(inputs.batch, column))
            )
            assert not same_value(one, other), (boundary.path, name, column)


def _changed(batch: Batch, column: str) -> Batch:
    before: Tensor = getattr(batch, column)
    if column == "group":  # other labels of the same groups would change nothing
        together = bool((before == before[0]).all())
        return with_columns(batch, group=torch.arange(batch.rows) if together else torch.zeros_like(before))
    return with_columns(batch, **{column: ~before if before.dtype == torch.bool else before + 1})
