"""``boundaries TARGET --missing``: functions of the signal path that no boundary enters."""

from contextlib import closing

from rich.console import Console

from rl_sentinel.audit.sandbox.worker_process import events, request
from rl_sentinel.audit.source.signal_functions import signal_functions
from rl_sentinel.audit.source.target_spec import TargetSpec
from rl_sentinel.audit.unbound_functions import reviewed_reasons, unbound_functions
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.report.formatting import counted, wrapped


def list_missing(console: Console, target: TargetSpec, python: str) -> None:
    """Print each function with its file and line, the roles of its parameters, and the reviewed reason or "to do".

    Raises:
        SentinelError: if the target is a function, or none of its boundaries could be called.
    """
    if target.form == "function":
        raise SentinelError(f"--missing applies to a framework, not to the function {target.text}: drop --missing")
    job, source = request(target, "entered", python=python)
    with closing(events(job, python)) as stream:
        entered = [name for event in stream if event["event"] == "entered" for name in event["names"]]
    if not entered:
        raise SentinelError(
            f"{target.text} has no boundary that can be called: see `rl-sentinel boundaries {target.text}`"
        )
    functions = signal_functions(source.root, target.framework.package_of(source.root))
    missing = unbound_functions(functions, entered)
    reasons = reviewed_reasons(target.framework.name)
    to_do = [f for f in missing if (f.file, f.name) not in reasons]
    total = f"{len(missing)} of {counted(len(functions), 'function')} of the signal path"
    console.print(f"{total} are not entered by any boundary, {len(to_do)} without a reviewed reason", markup=False)
    for function in missing:
        reason = reasons.get((function.file, function.name), "to do")
        console.print(f"{function.file}:{function.line} {function.name} ({', '.join(function.roles)})", markup=False)
        for line in wrapped(reason, indent="    ", hanging="    "):
            console.print(line, markup=False)
