"""Write a stand-alone script of a finding: make its calls, print the outputs, check the expectation."""

import json
from collections.abc import Mapping, Sequence

from rl_sentinel.audit.engine.executor import REFUSALS
from rl_sentinel.audit.repro.call_source import Source
from rl_sentinel.audit.repro.literal import Unwritable, literal
from rl_sentinel.audit.repro.matching_outputs import matching_views
from rl_sentinel.audit.repro.provenance import View
from rl_sentinel.audit.repro.recorded_run import Run
from rl_sentinel.audit.repro.run_functions import run_functions
from rl_sentinel.core.expectations import Answers, Expectation, Pair, Refuses

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
    known_views: Sequence[tuple[View | None, View | None]] = (),
) -> list[str]:
    """The lines of a script that shows one broken expectation, without its first line.

    Args:
        code: the code of the law.
        expectation: the broken expectation.
        runs: the runs of the boundary.
        known_views: for each pair of the expectation, the views of the expected and the observed tensor; a view of None
            is searched for by numbers.

    Raises:
        Unwritable: if the calls have no source, or no run returned the compared values.
    """
    if isinstance(expectation, Refuses):
        return _refusal_script(code, expectation, runs)
    if isinstance(expectation, Answers):
        return _exception_script(code, expectation, runs)
    return _comparison_script(code, expectation, runs, known_views)


def _comparison_script(
    code: str, expectation: Expectation, runs: Sequence[Run], known_views: Sequence[tuple[View | None, View | None]]
) -> list[str]:
    """Lines that print the compared tensors, and check whether they are as expected."""
    pairs = expectation.pairs()
    views = _views(pairs, runs, known_views)
    used = list(dict.fromkeys(view.run for sides in views for view in sides if view is not None))
    text = Source()
    functions = run_functions(
        text, [runs[number] for number in used], tuple(dict.fromkeys(pair.output for pair in pairs))
    )
    variables = _variables(used)
    lines = [f"{name} = {call}" for name, call in zip(variables.values(), functions.calls, strict=True)]
    lines += ["", f"# {code}: {expectation.sentence()}"]
    tests = []
    for n, (pair, (expected, observed)) in enumerate(zip(pairs, views, strict=True)):
        number = "" if len(pairs) == 1 else f"_{n}"
        sides = {}
        if expected is not None:
            sides[f"expected{number}"] = _view_source(expected, runs, variables, pair.output)
        elif pair.expected is not None:
            sides[f"expected{number}"] = f"torch.tensor({literal(pair.expected.detach().tolist())})"
        sides[f"observed{number}"] = _view_source(observed, runs, variables, pair.output)
        lines += [f"{name} = {source}" for name, source in sides.items()]
        lines += [f'print("{name}:", {name}.tolist())' for name in sides]
        tests.append(expectation.assertion(f"observed{number}", f"expected{number}"))
    return [*_head(text, functions.body), *lines, f"holds = {' or '.join(tests)}", *_end(code, expectation.output)]


def _views(
    pairs: Sequence[Pair], runs: Sequence[Run], known_views: Sequence[tuple[View | None, View | None]]
) -> list[tuple[View | None, View]]:
    """For each pair, the views of the expected tensor (None for a literal) and of the observed tensor.

    Raises:
        Unwritable: if no run returned the observed tensor.
    """
    known_views = known_views or [(None, None)] * len(pairs)
    found = [matching_views(pair, runs, *known) for pair, known in zip(pairs, known_views, strict=True)]
    views = [sides for sides in found if sides is not None]
    if not views or len(views) < len(pairs):
        raise Unwritable("no recorded call of the boundary returned the compared values, so a script cannot show them")
    return views


def _view_source(view: View, runs: Sequence[Run], variables: Mapping[int, str], output: str) -> str:
    return f"{variables[view.run]}[{output!r}]{runs[view.run].cut(output)}{view.cut}"


def _variables(used: Sequence[int]) -> dict[int, str]:
    """Number of a run -> the variable that holds its outputs."""
    names = {1: ["answer"], 2: ["before", "after"]}.get(len(used), [f"answer_{n}" for n in range(len(used))])
    return dict(zip(used, names, strict=True))


def _refusal_script(code: str, expectation: Refuses, runs: Sequence[Run]) -> list[str]:
    """Lines that repeat each attempt with the wrong result."""
    wrong = expectation.broken().tolist()
    names = [attempt.name for attempt, broken in zip(expectation.attempts, wrong, strict=True) if broken]
    chosen = [next((run for run in runs if run.case.setting == name), None) for name in names]
    if not names or any(run is None for run in chosen):
        raise Unwritable("the boundary was not called with the input that it wrongly accepted or refused")
    text = Source()
    functions = run_functions(text, [run for run in chosen if run is not None], ())
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
    """Lines that repeat the call that raises; another exception ends with status 2.

    If the expectation is about a listed option, a refusal does not end with status 2.
    """
    text = Source()
    functions = run_functions(text, [run for run in runs if not run.outputs][:1], ())
    if not functions.calls:
        raise Unwritable("no recorded call of the boundary raised an exception")
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
