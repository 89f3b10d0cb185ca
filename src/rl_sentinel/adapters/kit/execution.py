"""Run a boundary: build its calls from a case, run them in order, read the outputs."""

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
class EncodedCall:
    """One call of a boundary as data: its step, the part of the rows that it receives, and the call."""

    step: Step
    part: tuple[int, int]
    call: Call


@dataclass(slots=True, eq=False)
class Execution:
    """The result of a run of a boundary.

    Attributes:
        values: outputs in the neutral layout, by name.
        calls: the calls, in order.
        results: results and keyword arguments of all steps, by name.
        references: arguments that carry columns, each with its codec.
        sizes: shape of the batch.
        leaves: pairs (laid-out column, leaf tensor) for targets that call ``backward`` themselves.
    """

    values: dict[str, Tensor] = field(default_factory=dict)
    calls: list[EncodedCall] = field(default_factory=list)
    results: StepResults = field(default_factory=StepResults)
    references: list[tuple[Codec, Any]] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    leaves: list[tuple[Tensor, Tensor]] = field(default_factory=list)


def inputs_of(boundary: Boundary, case: Case, batch: Batch | None = None) -> Inputs:
    """The inputs of a boundary's codecs; ``batch`` replaces the batch of the case."""
    family = boundary.settings.get(case.setting, next(iter(boundary.settings.values())))
    return Inputs(case.batch if batch is None else batch, {**family, **case.override}, case.layout)


def encode(boundary: Boundary, inputs: Inputs) -> list[EncodedCall]:
    """Build the calls of a boundary for a case, in order, without running them.

    Raises:
        NotApplicable: with the reason, if the target's trainer could not make these calls.
    """
    for condition in boundary.requires:
        if why := condition(inputs):
            raise NotApplicable(why)
    return [EncodedCall(step, cut.part, _call(step, cut)) for step in boundary.steps for cut in cuts(inputs, step.each)]


def _call(step: Step, inputs: Inputs) -> Call:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, codec in step.arguments.items():
        if isinstance(codec, Spread):
            kwargs |= codec.put(inputs)
        elif name.isdigit():
            args.append(codec.put(inputs))
        elif not codec.omitted(inputs):
            kwargs[name] = codec.put(inputs)
    return Call(step.call, tuple(args), kwargs)


def cuts(inputs: Inputs, each: tuple[str, ...]) -> Iterator[Inputs]:
    """Split the rows into contiguous parts, one per rank, per micro-batch or per both; one part if ``each`` is empty.

    With fewer rows than parts, the last parts have no rows.
    """
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
    """The sizes of a batch."""
    return Sizes(batch.rows, batch.width, batch.length, batch.prompt_length, batch.mask)


#: Called before each call with the step, its passed arguments by name, and the results of earlier steps.
BeforeCall = Callable[[Step, dict[str, Any], StepResults], None]


def execute(
    target: Target,
    boundary: Boundary,
    inputs: Inputs,
    before: BeforeCall | None = None,
    *,
    references: bool = True,
) -> Execution:
    """Run the calls of a boundary in order and read its outputs.

    Without ``references``, :func:`columns_after` returns no columns. If the target calls ``backward``, the gradients
    of its leaves are attached to the output ``loss``.

    Raises:
        NotApplicable: with the reason, if the target's trainer could not make these calls.
    """
    run = Execution(
        calls=encode(boundary, inputs),
        sizes=replace(sizes_of(inputs.batch), extra=inputs.layout.extra),
        leaves=inputs.leaves,
    )
    for encoded in run.calls:
        _run(target, encoded, run, before, references=references)
    for name, output in boundary.outputs.items():
        run.values[name] = _read_output(output, run, inputs)
    if inputs.leaves and "loss" in run.values:
        run.values["loss"] = run.values["loss"] + _leaf_gradients(inputs.leaves)
    return run


def _leaf_gradients(leaves: list[tuple[Tensor, Tensor]]) -> Tensor:
    """A scalar 0 whose gradient with respect to the columns is the gradient that ``backward`` stored on the leaves."""
    total = torch.zeros(())
    for column, leaf in leaves:
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        total = total + ((column - column.detach()) * gradient).sum()
    return total


def _explain(step: Step, error: BaseException, passed: Mapping[str, Any]) -> BaseException:
    """Convert the exception of a call by ``step.explain``; replace an exception that would end this process.

    A plain ``KeyboardInterrupt`` comes from the user, and is returned unchanged.
    """
    if type(error) is KeyboardInterrupt:
        return error
    if not isinstance(error, Exception):
        return TargetRaised(f"the target tried to end the process ({type(error).__name__}: {error})")
    return error if step.explain is None else step.explain(error, passed)


def _run(target: Target, encoded: EncodedCall, run: Execution, before: BeforeCall | None, *, references: bool) -> None:
    """Run one call; store its keyword arguments, its recorded inner calls and its result by name.

    They are stored in lists if the step is repeated per part.
    """
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
    call_function = invoke_remembered if step.remembered else invoke
    recording: AbstractContextManager[dict[str, InnerCall]] = nullcontext({})
    if step.inside:
        recording = _record_inner_calls(target, step.inside)
    try:
        with _install_fakes(target, step.fakes), recording as inner:
            result = call_function(target, call.function, args, kwargs, results)
    except BaseException as error:
        explained = _explain(step, error, passed)
        if explained is error:
            raise
        raise explained from error
    for name, value in {**kwargs, **inner, step.result: result}.items():
        if not step.each:
            results[name] = value
        elif encoded.part[0] == 0:
            results[name] = [value]
        else:
            results[name].append(value)


@contextmanager
def _install_fakes(target: Target, fakes: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    undo = [target.replace(path, partial(_return_fake, fake)) for path, fake in fakes.items()]
    try:
        yield
    finally:
        for restore in reversed(undo):
            restore()


def _return_fake(fake: Callable[..., Any], _replaced: Callable[..., Any]) -> Callable[..., Any]:
    return fake


@dataclass(slots=True)
class InnerCall:
    """Arguments and result of the last call of an inner function."""

    arguments: dict[str, Any] = field(default_factory=dict)
    result: Any = None


@contextmanager
def _record_inner_calls(target: Target, inside: Mapping[str, str]) -> Iterator[dict[str, InnerCall]]:
    """Record the last call of each of these functions of the target while a step runs."""
    calls = {name: InnerCall() for name in inside}
    undo = [target.replace(path, _recorder(calls[name])) for name, path in inside.items()]
    try:
        yield calls
    finally:
        for restore in reversed(undo):
            restore()


def _recorder(inner: InnerCall) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    import inspect  # noqa: PLC0415 - needed only by boundaries with inner functions

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        def recorded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
            inner.arguments = dict(signature.bind(*args, **kwargs).arguments)
            inner.result = function(*args, **kwargs)
            return inner.result

        return recorded

    return wrap


def _read_output(output: Output, run: Execution, inputs: Inputs) -> Tensor:
    use = output.at or Use(run.calls[-1].step.result)
    form = output.form or (PerRow() if output.axes == "B" else Number())
    if output.join is None:
        return form.read(run.results.use(use), run.sizes)
    values = run.results[use.name]
    each = next(c.step.each for c in run.calls if use.name in _names(c))
    parts = [
        form.read(Use("part", use.path).follow({"part": value}), sizes_of(cut.batch))
        for value, cut in zip(values, cuts(inputs, each), strict=True)
    ]
    return _join(parts, output.join, inputs.layout.ranks)


def _join(parts: list[Tensor], join: Join, ranks: int) -> Tensor:
    """Combine the outputs of all ranks and micro-batches into one tensor."""
    if join == "rows":
        return torch.cat(parts)
    if join == "last":
        return parts[-1]
    stacked = torch.stack(parts)
    if join == "mean":
        return stacked.mean(0)
    return stacked.sum(0) / (ranks if join == "rank-mean" else 1)


def _names(encoded: EncodedCall) -> set[str]:
    return {encoded.step.result, *encoded.call.kwargs, *encoded.step.inside}


def columns_after(run: Execution, batch: Batch) -> dict[str, Tensor]:
    """The columns of a batch as the passed arguments hold them after the calls: they show changes in place.

    A tensor that the target replaces in a container is not changed in place: the passed tensor is the same.
    """
    after: dict[str, Tensor] = {}
    for codec, value in run.references:
        before = codec.canonical(batch)
        for column, now in codec.take(value, run.sizes).items():
            whole: Tensor = getattr(batch, column)
            same = (now == before[column]) | (now.isnan() & before[column].isnan())
            after[column] = torch.where(same, after.get(column, whole), now.to(whole.dtype))
    return after
