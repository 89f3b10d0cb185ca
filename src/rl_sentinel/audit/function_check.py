"""Audit one function of this process in a forked child, with the engine of ``rl-sentinel audit``."""

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rl_sentinel.adapters.live_target import LiveTarget, live_target, spec_of
from rl_sentinel.adapters.user_function import Statement, describe
from rl_sentinel.audit.engine.judge import prepare
from rl_sentinel.audit.engine.worker import carry_out, laws
from rl_sentinel.audit.findings import Audit
from rl_sentinel.audit.sandbox.forked_events import Send, forked_events
from rl_sentinel.audit.sandbox.import_timeout import import_time_limit
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.core.errors import InputError, Unbindable


def audit_function(function: Callable[..., Any], statement: Statement, **options: Any) -> Audit:  # noqa: ANN401
    """Audit a function object of this process, and return the results.

    Args:
        function: any Python callable: a function, method, lambda, closure, partial or async function.
        statement: the user's claims and bindings.
        options: fields of :class:`Request`, such as ``seed``, ``budget`` and ``laws``.

    Raises:
        InputError: if the function cannot be checked, for example because a parameter is unknown.
        SentinelError: if the child process dies.
    """
    try:
        target = live_target(function)
    except Unbindable as error:
        raise InputError(str(error)) from error
    provenance = {"spec": spec_of(function) or target.path, "stage": statement.stage}
    if statement.bind or statement.numbers:
        provenance["bound"] = _json_or_empty({"bind": statement.bind, "numbers": statement.numbers})
    request = Request(task="audit", framework="own", root=str(target.root), version="", target=provenance, **options)
    prepare([(law, None) for law in laws().values()], request.seed, request.budget)  # needed only once per process
    audit = Audit()
    for event in forked_events(lambda send: _check(request, target, statement, send)):
        audit.take(event)
    if audit.verdicts and all(v.law == "*" for v in audit.verdicts):
        raise InputError(f"{target.path} cannot be checked: {audit.verdicts[0].reason}")
    return audit


def why_no_replay(function: Callable[..., Any], bind: Mapping[str, Any]) -> str:
    """The reason why a finding at a function cannot be replayed by name later; empty if it can."""
    if inspect.isfunction(function) and function.__module__ == "__main__" and function.__qualname__.isidentifier():
        return "a function of the running script or notebook cannot be imported by name: move it into a module"
    if not spec_of(function):
        name = _name_of_method(function)
        fix = f": rl-sentinel audit {name} writes a finding that can be replayed" if name else ""
        return f"a lambda, closure, method or callable object cannot be imported by name{fix}"
    return "" if _json_or_empty(bind) else "bind has a function or another object that a JSON file cannot hold"


def _name_of_method(function: Callable[..., Any]) -> str:
    """``module:object.method`` of a method of an object that its module holds; empty for other functions."""
    owner = getattr(function, "__self__", None) if inspect.ismethod(function) else None
    module = sys.modules.get(type(owner).__module__)
    held = vars(module).items() if owner is not None and module and module.__name__ != "__main__" else ()
    return next((f"{type(owner).__module__}:{n}.{function.__name__}" for n, one in held if one is owner), "")


def _json_or_empty(value: Any) -> str:  # noqa: ANN401 - any binding
    """The value as JSON; empty if it is not plain data."""
    try:
        return json.dumps(value)
    except TypeError:
        return ""


def _check(request: Request, target: LiveTarget, statement: Statement, send: Send) -> None:
    with import_time_limit():
        boundaries = describe(target, target.path, statement)
    carry_out(request, target, boundaries, send)
