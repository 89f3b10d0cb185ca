"""Run a boundary: build the calls from a case, make them in order, read the outputs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.evaluation import StepResults, evaluate, invoke, invoke_remembered
from rl_sentinel.adapters.kit.forms import Number, PerRow
from rl_sentinel.adapters.kit.value_codecs import Spread
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, take_rows
from rl_sentinel.core.boundary import Boundary, Join, Output, Step
from rl_sentinel.core.call import Call, Use
from rl_sentinel.core.case import Case
from rl_sentinel.core.codec import Codec, Inputs, Sizes
from rl_sentinel.core.errors import NotApplicable, TargetRaised


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """One call of a pipeline as data: its step, the cut of the rows that it is for, and the call."""

    step: Step
    part: tuple[int, int]
    call: Call


@dataclass(slots=True, eq=False)
class Execution:
    """What a run of a boundary leaves behind.

    ``values`` are the outputs in the neutral layout, ``calls`` the calls that were made, ``references`` what carried
    columns in their arguments, ``results`` every result and argument by name, ``sizes`` the shape of the batch.
    """

    values: dict[str, Tensor] = field(default_factory=dict)
    calls: list[Encoded] = field(default_factory=list)
    results: StepResults = field(default_factory=StepResults)
    references: list[tuple[Codec, Any]] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    leaves: list[tuple[Tensor, Tensor]] = field(default_factory=list)


def inputs_of(boundary: Boundary, case: Case, batch: Batch | None = None) -> Inputs:
    """What the codecs of a boundary build their arguments from; ``batch`` replaces the case's own."""
    family = boundary.settings.get(case.setting, next(iter(boundary.settings.values())))
    return Inputs(case.batch if batch is None else batch, {**family, **case.override}, case.layout)


def encode(boundary: Boundary, inputs: Inputs) -> list[Encoded]:
    """The calls of a boundary for a case, in order; nothing is run.

    Raises:
        NotApplicable: with the reason, where the target's trainer could not make these calls.
    """
    for condition in boundary.requires:
        if why := condition(inputs):
            raise NotApplicable(why)
    return [Encoded(step, cut.part, _call(step, cut)) for step in boundary.steps for cut in cuts(inputs, step.each)]


def _call(step: Step, inputs: Inputs) -> Call:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, codec in step.arguments.items():
        if isinstance(codec, Spread):
            kwargs |= codec.put(inputs)
        elif name.isdigit():
            args.append(codec.put(inputs))
        else:
            kwargs[name] = codec.put(inputs)
    return Call(step.call, tuple(args), kwargs)


def cuts(inputs: Inputs, each: tuple[str, ...]) -> Iterator[Inputs]:
    """The batch, or its rows in as many contiguous parts as the layout has ranks times micro-batches."""
    counts = {"rank": inputs.layout.ranks, "micro_batch": inputs.layout.micro_batches}
    count = 1
    for cut in each:
        count *= counts[cut]
    if count == 1:
        yield inputs
        return
    rows = torch.arange(inputs.batch.rows).tensor_split(count)
    for number, index in enumerate(rows):
        yield replace(inputs, batch=take_rows(inputs.batch, index), whole=inputs.mini_batch, part=(number, count))


def sizes_of(batch: Batch) -> Sizes:
    """The shape of a batch."""
    return Sizes(batch.rows, batch.width, batch.length, batch.prompt_length, batch.mask)


#: Called before each call, with its step, its live arguments by name, and the results of earlier steps.
Listener = Callable[[Step, dict[str, Any], StepResults], None]


def execute(
    target: Target,
    boundary: Boundary,
    inputs: Inputs,
    before: Listener | None = None,
    *,
    references: bool = True,
) -> Execution:
    """Run the calls of a boundary in order and read its outputs.

    Without ``references`` the columns after the call cannot be read.

    Raises:
        NotApplicable: with the reason, where the target's trainer could not make these calls.
    """
    run = Execution(
        calls=encode(boundary, inputs),
        sizes=replace(sizes_of(inputs.batch), extra=inputs.layout.extra),
        leaves=inputs.leaves,
    )
    for encoded in run.calls:
        _make(target, encoded, run, before, references=references)
    for name, output in boundary.outputs.items():
        run.values[name] = _read(output, run, inputs)
    if inputs.leaves and "loss" in run.values:
        run.values["loss"] = run.values["loss"] + _of_leaves(inputs.leaves)
    return run


def _of_leaves(leaves: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Zero, with the gradient that the target's own backward leaves on the leaves."""
    total = torch.zeros(())
    for column, leaf in leaves:
        slope = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        total = total + ((column - column.detach()) * slope).sum()
    return total


def _explained(step: Step, error: Exception | SystemExit, passed: Mapping[str, Any]) -> Exception:
    """The exception that a call's exception becomes; one that would end this process is no answer."""
    if isinstance(error, SystemExit):
        return TargetRaised(f"it ends the process with SystemExit: {error.code}")
    return error if step.explain is None else step.explain(error, passed)


def _make(target: Target, encoded: Encoded, run: Execution, before: Listener | None, *, references: bool) -> None:
    """Evaluate one call; leave its arguments and its result by name, as a list where the step is repeated."""
    step, call, results = encoded.step, encoded.call, run.results
    args = [evaluate(target, value, results) for value in call.args]
    kwargs = {name: evaluate(target, value, results) for name, value in call.kwargs.items()}
    passed = {**{str(n): value for n, value in enumerate(args)}, **kwargs}
    if references and not step.each:
        run.references += [
            pair for n, codec in step.arguments.items() if n in passed for pair in codec.references(passed[n])
        ]
    if before is not None:
        before(step, passed, results)
    if step.remembered:
        results.remembered.add(step.result)
    make = invoke_remembered if step.remembered else invoke
    watching: AbstractContextManager[dict[str, Inner]] = nullcontext({})
    if step.inside:
        watching = _observed(target, step.inside)
    try:
        with _doubled(target, step.doubles), watching as inner:
            result = make(target, call.function, args, kwargs, results)
    except (Exception, SystemExit) as error:
        explained = _explained(step, error, passed)
        if explained is error:
            raise
        raise explained from error
    fresh = {**kwargs, **inner, step.result: result}
    for name, value in fresh.items():
        if not step.each:
            results[name] = value
        elif encoded.part[0] == 0:
            results[name] = [value]
        else:
            results[name].append(value)


@contextmanager
def _doubled(target: Target, doubles: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Put functions of ours at paths of the target while a step runs."""
    undo = [target.replace(path, partial(_instead, double)) for path, double in doubles.items()]
    try:
        yield
    finally:
        for restore in reversed(undo):
            restore()


def _instead(double: Callable[..., Any], _own: Callable[..., Any]) -> Callable[..., Any]:
    return double


@dataclass(slots=True)
class Inner:
    """The last arguments and result of a function that was called inside a step."""

    arguments: dict[str, Any] = field(default_factory=dict)
    result: Any = None


@contextmanager
def _observed(target: Target, inside: Mapping[str, str]) -> Iterator[dict[str, Inner]]:
    """Keep the last arguments and result of functions of the target while a step runs."""
    seen = {name: Inner() for name in inside}
    undo = [target.replace(path, _watcher(seen[name])) for name, path in inside.items()]
    try:
        yield seen
    finally:
        for restore in reversed(undo):
            restore()


def _watcher(inner: Inner) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    import inspect  # noqa: PLC0415 - only where a boundary has inner points

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        def watched(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
            inner.arguments = dict(signature.bind(*args, **kwargs).arguments)
            inner.result = function(*args, **kwargs)
            return inner.result

        return watched

    return wrap


def _read(output: Output, run: Execution, inputs: Inputs) -> Tensor:
    place = output.at or Use(run.calls[-1].step.result)
    form = output.form or (PerRow() if output.axes == "B" else Number())
    if output.join is None:
        return form.read(run.results.use(place), run.sizes)
    values = run.results[place.name]
    each = next(c.step.each for c in run.calls if place.name in _names(c))
    parts = [
        form.read(Use("part", place.way).follow({"part": value}), sizes_of(cut.batch))
        for value, cut in zip(values, cuts(inputs, each), strict=True)
    ]
    return _joined(parts, output.join, inputs.layout.ranks)


def _joined(parts: list[Tensor], join: Join, ranks: int) -> Tensor:
    """One tensor of what the cuts of a step gave."""
    if join == "rows":
        return torch.cat(parts)
    if join == "last":
        return parts[-1]
    stacked = torch.stack(parts)
    if join == "mean":
        return stacked.mean(0)
    return stacked.sum(0) / (ranks if join == "rank-mean" else 1)


def _names(encoded: Encoded) -> set[str]:
    return {encoded.step.result, *encoded.call.kwargs, *encoded.step.inside}


def columns_after(run: Execution, batch: Batch) -> dict[str, Tensor]:
    """The columns of a batch as the tensors that were passed hold them after the calls.

    A tensor that the target replaces in a container is no change of the one that was passed.
    """
    after: dict[str, Tensor] = {}
    for codec, value in run.references:
        before = codec.canonical(batch)
        for column, now in codec.take(value, run.sizes).items():
            whole: Tensor = getattr(batch, column)
            same = (now == before[column]) | (now.isnan() & before[column].isnan())
            after[column] = torch.where(same, after.get(column, whole), now.to(whole.dtype))
    return after
