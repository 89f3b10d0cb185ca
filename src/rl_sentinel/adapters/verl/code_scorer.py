"""Boundary of verl's scorer of programs: the reward of right and wrong solutions that a sandbox runs on test cases."""

import inspect
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

MODULE = "verl.utils.reward_score.sandbox_fusion"
PATH, REQUEST = f"{MODULE}.compute_score", f"{MODULE}.utils.call_sandbox_api"

#: Setting -> its number among the kinds of test cases.
SETTINGS: Mapping[str, Settings] = {
    "inputs": {"kind": 0},
    "a function": {"kind": 1},
    "a function without arguments": {"kind": 2},
    "assertions": {"kind": 3},
}

#: Kind of test cases -> the solution; ``{}`` stands for a number, which is right or wrong.
_SOLUTIONS = (
    "print(int(input()) + {})",
    "def answer(x, y):\n    return x * y + {}",
    "def answer():\n    return {}",
    "def answer(x):\n    return x + {}",
)

_DOCS = claims(
    "sandbox_fusion/__init__.py, compute_score, docstring: test_cases, inputs and outputs; the share of passed cases; "
    "utils.py, _process_single_case: arguments of a function as lines of JSON",
    conserves=True,
)
_CALLED = (
    "reward_score/__init__.py, default_compute_score with sandbox_fusion_url: the response and the ground truth of a "
    "row of coding problems; https://github.com/bytedance/SandboxFusion: run_code returns status and run_result"
)

#: Programs change ``sys.stdin`` while they run.
_LOCK = threading.Lock()


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the scorer, with the kinds of test cases that a release knows."""
    if target.has(PATH) and target.has(REQUEST) and not target.fails(PATH):
        yield from try_bind(target, PATH, "batch", lambda: [_scorer(target)])


def run_code(code: str, stdin: str | None = None, **_about: object) -> tuple[dict[str, Any], None]:
    """A fake of the sandbox's reply: the program runs in this process."""
    output, failed = io.StringIO(), ""
    with _LOCK, _stdin(stdin or ""), redirect_stdout(output):
        try:
            exec(compile(code, "<solution>", "exec"), {"__name__": "__main__"})  # noqa: S102 - the solutions below
        except Exception as error:  # noqa: BLE001 - as the sandbox reports any error
            failed = repr(error)
    about = {"status": "Finished", "execution_time": 0.0, "stdout": output.getvalue(), "stderr": failed}
    return {
        "status": "Failed" if failed else "Success",
        "message": "",
        "compile_result": None,
        "run_result": {**about, "return_code": int(bool(failed))},
    }, None


@contextmanager
def _stdin(text: str) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.StringIO(text)
    try:
        yield
    finally:
        sys.stdin = before


def cases_of(kind: int, number: int) -> dict[str, Any]:
    """The test cases that are passed by the solution with this number."""
    return (
        {"inputs": ["3\n", "4\n"], "outputs": [f"{3 + number}\n", f"{4 + number}\n"]},
        {"inputs": ["3\n4"], "outputs": [str(12 + number)], "fn_name": "answer"},
        {"inputs": [None], "outputs": [str(number)], "fn_name": "answer"},
        {"assert_case": [f"assert answer(1) == {1 + number}", f"assert answer(2) == {2 + number}"]},
    )[kind]


def scored(score: Callable[..., Any], tokens: Tensor, rewards: Tensor, kind: int) -> list[float]:
    """Score a right solution for each row with a positive reward, and a wrong one for each other row.

    Returns the row's reward, but 0 if a right solution has no positive score, and 1 if a wrong one has one.
    """
    given = {"sandbox_fusion_url": "http://sandbox", "concurrent_semaphore": None, "memory_limit_mb": 1024}
    known = {name: value for name, value in given.items() if name in inspect.signature(score).parameters}
    results = []
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # wrong solutions are logged as errors
    try:
        for row, reward in enumerate(rewards.tolist()):
            number = row + 5
            solution = _SOLUTIONS[kind].format(number if reward > 0 else number + 1)
            text = " ".join(map(str, tokens[row].tolist()))
            result = score(completion=f"{text}\n```python\n{solution}\n```", test_cases=cases_of(kind, number), **known)
            passed = float(result[0] if isinstance(result, tuple) else result) > 0
            results.append(reward if passed == (reward > 0) else float(passed))
    finally:
        logging.disable(level)
    return results


def _scorer(target: Target) -> Boundary:
    source = inspect.getsource(target.find(PATH)) + inspect.getsource(target.module(f"{MODULE}.utils"))
    words = {"a function": "fn_name", "a function without arguments": "fn_name", "assertions": "assert_case"}
    return one_call(
        path=PATH,
        stage="batch",
        call=scored,
        name="scored",
        fakes={REQUEST: run_code},
        arguments={
            **functions(score=PATH),
            "tokens": Column("token"),
            "rewards": Column("reward"),
            "kind": Knob("kind"),
        },
        produced_by={"tokens": _CALLED},
        unused=frozenset({"token"}),
        outputs={"reward": Output("B", "reward", "reward", at=Use("scored"), form=PerRow("list"))},
        settings={name: own for name, own in SETTINGS.items() if words.get(name, "") in source},
        claims=_DOCS,
        reach="data sources of coding problems, with sandbox_fusion.url",
    )
