"""Write the functions of a script that make the calls of recorded runs, and return their outputs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rl_sentinel.adapters.kit.execution import EncodedCall
from rl_sentinel.audit.repro.call_source import Source, keyword, parameter_names, variable, wrapped
from rl_sentinel.audit.repro.literal import Unwritable
from rl_sentinel.audit.repro.output_expression import output_expression, shared_expression
from rl_sentinel.audit.repro.recorded_run import Run
from rl_sentinel.core.call import Call, Use


@dataclass(frozen=True, slots=True)
class RunFunctions:
    """Lines that define the functions of a script (``body``), and for each run the call of its function."""

    body: list[str]
    calls: list[str]


def run_functions(text: Source, runs: Sequence[Run], outputs: tuple[str, ...]) -> RunFunctions:
    """One function per boundary, which makes its calls and returns the outputs.

    Args:
        text: the parts of the script; imports and included sources are added.
        runs: the runs; the values that differ between the runs of a boundary are parameters of its function.
        outputs: the names of the outputs.

    Raises:
        Unwritable: if the calls have no source.
    """
    body: list[str] = []
    calls: dict[int, str] = {}
    shapes = dict.fromkeys(_shape(run) for run in runs)
    for number, shape in enumerate(shapes):
        members = [n for n, run in enumerate(runs) if _shape(run) == shape]
        name = "run" if len(shapes) == 1 else f"run_{number}"
        text.parameters = {}
        lines = _body(text, [runs[n] for n in members], outputs)
        body += [f"def {name}({', '.join(text.parameters)}):", *(f"    {line}" for line in lines), ""]
        for index, n in enumerate(members):
            arguments = ",\n    ".join(f"{key}={values[index]}" for key, values in text.parameters.items())
            calls[n] = f"{name}(\n    {arguments},\n)" if arguments else f"{name}()"
    return RunFunctions(body, [calls[n] for n in range(len(runs))])


def _shape(run: Run) -> tuple[object, ...]:
    """The key of a run: runs with the same calls and argument names share a function."""
    return (run.boundary.path, *((str(c.call.function), len(c.call.args), *c.call.kwargs) for c in run.calls))


def _body(text: Source, runs: Sequence[Run], outputs: tuple[str, ...]) -> list[str]:
    """The lines of a function that makes the calls of these runs and returns the outputs; the runs have the same shape.

    Raises:
        Unwritable: if there are no calls, or a step records calls inside of it.
    """
    first = runs[0]
    if not first.calls:
        raise Unwritable("the boundary calls no function")
    if any(encoded.step.inside for encoded in first.calls):
        raise Unwritable("the boundary records calls that the target's code makes, which a script cannot do")
    declared = {name: first.boundary.outputs[name] for name in outputs if name in first.boundary.outputs}
    sources = {name: output.at or Use(first.calls[-1].step.result) for name, output in declared.items()}
    later = {use.name for run in runs for use in _uses(run)}
    used = later | {use.name for use in sources.values()}
    lines = _fake_lines(text, first)
    for number, encoded in enumerate(first.calls):
        lines += _call_lines(text, [run.calls[number] for run in runs], used)
        lines += _result_list(encoded) if encoded.step.result in later else []
    results = []
    for name, use in sources.items():
        expressions = [output_expression(declared[name], use, run) for run in runs]
        results.append(f"{name!r}: {shared_expression(expressions, text, name)}")
    return [*lines, *wrapped("return {", results, "}").splitlines()]


def _fake_lines(text: Source, run: Run) -> list[str]:
    """Lines that install the replacement functions of a run in the modules or classes of the target."""
    lines = []
    for path, fake in {path: one for encoded in run.calls for path, one in encoded.step.fakes.items()}.items():
        owner, _, name = path.rpartition(".")
        lines.append(f"{text.names.imported(owner)}.{name} = {text.include(fake)}")
    return lines


def _call_lines(text: Source, runs_of_call: Sequence[EncodedCall], used: Collection[str]) -> list[str]:
    """Lines that make one call.

    Args:
        text: the parts of the script; arguments that differ between the runs are added to its parameters.
        runs_of_call: the call in each run.
        used: names of arguments and results that later calls or outputs read; these become variables.
    """
    encoded, calls = runs_of_call[0], [one.call for one in runs_of_call]
    names = parameter_names(encoded.call.function)
    lines, arguments = list[str](), list[str]()
    for n in range(len(encoded.call.args)):
        hint = names[n] if n < len(names) else encoded.step.result
        arguments.append(text.shared_source([call.args[n] for call in calls], hint))
    for key in encoded.call.kwargs:
        value = text.shared_source([call.kwargs[key] for call in calls], key)
        if key in used or ("\n" in value and key.isidentifier()):
            lines += f"{variable(Use(key))} = {value}".splitlines()
            value = variable(Use(key))
        arguments.append(value if key == "self" else keyword(key, value))
    call = wrapped(f"{text.function(encoded.call.function)}(", arguments, ")")
    statement = _assignment(encoded, call) if encoded.step.result in used else call
    return lines + statement.splitlines()


def _assignment(encoded: EncodedCall, call: str) -> str:
    """Lines that assign the result of a call to the name of its step, numbered for a repeated step."""
    name = encoded.step.result
    return f"{name}_{encoded.part[0]} = {call}" if encoded.step.each else f"{name} = {call}"


def _result_list(encoded: EncodedCall) -> list[str]:
    """Lines that collect the results of a repeated step in a list for later steps."""
    number, count = encoded.part
    if not encoded.step.each or number + 1 < count:
        return []
    name = encoded.step.result
    return [f"{name} = [{', '.join(f'{name}_{n}' for n in range(count))}]"]


def _uses(run: Run) -> list[Use]:
    """The references to earlier values in the calls of a run."""
    uses: list[Use] = []

    def walk(value: object) -> None:
        if isinstance(value, Use):
            uses.append(value)
        elif isinstance(value, dict):
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                walk(inner)
        elif isinstance(value, Call):
            walk([*value.args, *value.kwargs.values(), value.function])

    for encoded in run.calls:
        walk(encoded.call)
    return uses
