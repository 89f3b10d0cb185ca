"""Write a stand-alone script of a finding: make its calls, print the outputs, check the expectation."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from rl_sentinel.adapters.kit.execution import EncodedCall
from rl_sentinel.audit.engine.executor import REFUSALS
from rl_sentinel.audit.repro.call_source import Source, keyword, parameter_names, variable, wrapped
from rl_sentinel.audit.repro.literal import Unwritable, literal
from rl_sentinel.audit.repro.matching_outputs import matching_views
from rl_sentinel.audit.repro.output_expression import output_expression, shared_expression
from rl_sentinel.audit.repro.provenance import View
from rl_sentinel.audit.repro.recorded_run import Run
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.call import Call, Use
from rl_sentinel.core.expectations import Answers, Expectation, Refuses

#: Source of the exceptions by which code refuses an input.
_REFUSALS = f"({', '.join(kind.__name__ for kind in REFUSALS)})"

#: Exit status 1 means "reproduced", which is also Python's status for an exception: a script with an unexpected
#: exception ends with 2.
EXIT_2_ON_ERROR = (
    "import sys",
    "",
    "",
    "def exit_2_on_error(*error):",
    "    sys.__excepthook__(*error)",
    "    raise SystemExit(2)",
    "",
    "",
    "sys.excepthook = exit_2_on_error",
)


def script(
    code: str,
    expectation: Expectation,
    runs: Sequence[Run],
    places: Sequence[tuple[View | None, View | None]] = (),
) -> list[str]:
    """The lines of a script that shows one broken expectation, without its first line.

    ``places`` has, for each pair, the views of the expected and the observed tensor; None is searched for by numbers.

    Raises:
        Unwritable: if the calls have no source, or no run holds the compared numbers.
    """
    if isinstance(expectation, Refuses):
        return _refusal_script(code, expectation, runs)
    if isinstance(expectation, Answers):
        return _exception_script(code, expectation, runs)
    pairs = expectation.pairs()
    places = places or [(None, None)] * len(pairs)
    views_of_pairs = [matching_views(pair, runs, *place) for pair, place in zip(pairs, places, strict=True)]
    if not pairs or any(views is None for views in views_of_pairs):
        raise Unwritable("no run of the boundary holds the compared numbers")
    compared = [views for views in views_of_pairs if views is not None]
    used = list(dict.fromkeys(view.run for views in compared for view in views if view is not None))
    chosen = [runs[number] for number in used]
    outputs = tuple(dict.fromkeys(pair.output for pair in pairs))
    text = Source()
    functions = _functions(text, chosen, outputs)
    names = {number: _label(n, len(used)) for n, number in enumerate(used)}
    lines = [f"{names[number]} = {call}" for number, call in zip(used, functions.calls, strict=True)]
    lines += ["", f"# {code}: {expectation.sentence()}"]
    tests = []
    for n, (pair, (expected, observed)) in enumerate(zip(pairs, compared, strict=True)):
        mark = "" if len(pairs) == 1 else f"_{n}"
        expected_name, observed_name = f"expected{mark}", f"observed{mark}"
        if pair.expected is not None:
            place = _view_source(expected, runs, names, pair.output) if expected else _tensor(pair.expected)
            lines.append(f"{expected_name} = {place}")
        lines.append(f"{observed_name} = {_view_source(observed, runs, names, pair.output)}" if observed else "")
        printed = [observed_name] if pair.expected is None else [expected_name, observed_name]
        lines += [f'print("{name}:", {name}.tolist())' for name in printed]
        tests.append(expectation.assertion(observed_name, expected_name))
    return [*_head(text, functions.body), *lines, f"holds = {' or '.join(tests)}", *_end(code, expectation.output)]


def _view_source(view: View, runs: Sequence[Run], names: Mapping[int, str], output: str) -> str:
    return f"{names[view.run]}[{output!r}]{runs[view.run].cut(output)}{view.cut}"


def _label(number: int, count: int) -> str:
    return "answer" if count == 1 else ("before", "after")[number] if count == 2 else f"answer_{number}"


def _tensor(tensor: Tensor) -> str:
    return f"torch.tensor({literal(tensor.detach().tolist())})"


@dataclass(frozen=True, slots=True)
class _Functions:
    """Lines that define the functions of a script (``body``), and for each run the call of its function."""

    body: list[str]
    calls: list[str]


def _functions(text: Source, runs: Sequence[Run], outputs: tuple[str, ...]) -> _Functions:
    """One function per boundary; values that differ between its runs are parameters."""
    body: list[str] = []
    calls: dict[int, str] = {}
    shapes = dict.fromkeys(_shape(run) for run in runs)
    for number, shape in enumerate(shapes):
        members = [n for n, run in enumerate(runs) if _shape(run) == shape]
        name = "run" if len(shapes) == 1 else f"run_{number}"
        text.parameters = {}
        lines = _body(text, [runs[n] for n in members], outputs)
        body += [f"def {name}({', '.join(text.parameters)}):", *(f"    {line}" for line in lines), ""]
        for place, n in enumerate(members):
            arguments = ",\n    ".join(f"{key}={values[place]}" for key, values in text.parameters.items())
            calls[n] = f"{name}(\n    {arguments},\n)" if arguments else f"{name}()"
    return _Functions(body, [calls[n] for n in range(len(runs))])


def _shape(run: Run) -> tuple[object, ...]:
    """The key of a run: runs with the same calls and argument names share a function."""
    return (run.boundary.path, *((str(c.call.function), len(c.call.args), *c.call.kwargs) for c in run.calls))


def _body(text: Source, runs: Sequence[Run], outputs: tuple[str, ...]) -> list[str]:
    first = runs[0]
    if not first.calls:
        raise Unwritable("the boundary has no calls")
    if any(encoded.step.inside for encoded in first.calls):
        raise Unwritable("a script cannot record calls inside of a step")
    places = {name: _place(first, first.boundary.outputs[name]) for name in outputs if name in first.boundary.outputs}
    later = {use.name for run in runs for use in _uses(run)}
    used = {place.name for place in places.values()} | later
    lines: list[str] = []
    for path, double in {path: d for encoded in first.calls for path, d in encoded.step.doubles.items()}.items():
        owner, _, name = path.rpartition(".")
        lines.append(f"{text.names.imported(owner)}.{name} = {text.include(double)}")
    for number, encoded in enumerate(first.calls):
        same = [run.calls[number].call for run in runs]
        names = parameter_names(encoded.call.function)
        args = [
            text.shared_source([call.args[n] for call in same], names[n] if n < len(names) else encoded.step.result)
            for n in range(len(same[0].args))
        ]
        for key in same[0].kwargs:
            value = text.shared_source([call.kwargs[key] for call in same], key)
            if key in used or ("\n" in value and key.isidentifier()):
                lines += f"{variable(Use(key))} = {value}".splitlines()
                value = variable(Use(key))
            args.append(value if key == "self" else keyword(key, value))
        call = wrapped(f"{text.function(encoded.call.function)}(", args, ")")
        lines += _assignment(encoded, call).splitlines() if encoded.step.result in used else call.splitlines()
        lines += _result_list(encoded) if encoded.step.result in later else []
    results = []
    for name, place in places.items():
        output = first.boundary.outputs[name]
        text_of = shared_expression([output_expression(output, place, run) for run in runs], text, name)
        results.append(f"{name!r}: {text_of}")
    return [*lines, *wrapped("return {", results, "}").splitlines()]


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


def _place(run: Run, output: Output) -> Use:
    return output.at or Use(run.calls[-1].step.result)


def _uses(run: Run) -> list[Use]:
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


def _refusal_script(code: str, expectation: Refuses, runs: Sequence[Run]) -> list[str]:
    """Lines that repeat each attempt with the wrong result."""
    wrong = expectation.broken().tolist()
    names = [attempt.name for attempt, broken in zip(expectation.attempts, wrong, strict=True) if broken]
    chosen = [next((run for run in runs if run.case.setting == name), None) for name in names]
    if not names or any(run is None for run in chosen):
        raise Unwritable("no run of the boundary is one of the attempts")
    text = Source()
    functions = _functions(text, [run for run in chosen if run is not None], ())
    attempts = ", ".join(f"{json.dumps(n)}: lambda: {call}" for n, call in zip(names, functions.calls, strict=True))
    word = "accepted, but must be refused" if not expectation.accepts else "refused, but must be accepted"
    return [
        *_head(text, functions.body),
        f"attempts = {{{attempts}}}",
        "holds = True",
        "for name, attempt in attempts.items():",
        "    try:",
        "        attempt()",
        "        message = None",
        f"    except {_REFUSALS} as refusal:",
        "        message = str(refusal)",
        '    print(name + ":", "accepted" if message is None else "refused: " + message)',
        f"    holds = holds and ({expectation.assertion('message')})",
        "",
        f'print("{code}:", "as expected" if holds else "{word}")',
        "raise SystemExit(0 if holds else 1)",
    ]


def _exception_script(code: str, expectation: Answers, runs: Sequence[Run]) -> list[str]:
    """Lines that repeat the call that raises; another exception ends with status 2, unless it is a refusal."""
    text = Source()
    functions = _functions(text, [run for run in runs if not run.outputs][:1], ())
    if not functions.calls:
        raise Unwritable("no run of the boundary raises")
    if expectation.listed is None:
        other = f"!= {expectation.kind!r}"
    else:
        text.names.imports["import re"] = None
        other = f"not in {tuple(dict.fromkeys([expectation.kind, *(kind.__name__ for kind in REFUSALS)]))}"
    return [
        *_head(text, functions.body),
        "message = None",
        "try:",
        *(f"    {line}" for line in functions.calls[0].splitlines()),
        "except Exception as error:",
        f"    if type(error).__name__ {other}:",
        "        raise",
        "    message = str(error)",
        f"# {code}: {expectation.sentence()}",
        'print("returned" if message is None else "raised: " + message)',
        f"holds = {expectation.assertion('message')}",
        *_end(code, expectation.output),
    ]


def _head(text: Source, body: list[str]) -> list[str]:
    included = [line for part in text.included.values() for line in ("", *part.splitlines())]
    code = "\n".join([*included, *body, *(v for values in text.parameters.values() for v in values)])
    imports = [line for line in sorted(text.names.imports) if _is_used(line, code) or line == "import torch"]
    return [
        "from __future__ import annotations",
        *EXIT_2_ON_ERROR,
        *imports,
        "",
        *included[1:],
        *([""] if included else []),
        *body,
    ]


def _is_used(line: str, code: str) -> bool:
    return line.rpartition(" ")[2] in code


def _end(code: str, output: str) -> list[str]:
    return [
        f'print("{code}: {output}", "is as expected" if holds else "is not as expected")',
        "raise SystemExit(0 if holds else 1)",
    ]


def no_script(reason: str) -> list[str]:
    """A placeholder for a script that cannot be written: it prints why, and ends with status 2 (undecided)."""
    return [f"print({f'no script: {reason}'!r})", "raise SystemExit(2)"]
