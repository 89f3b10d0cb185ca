"""Run work in a forked child of the user's process, and return its events; the user's process is not changed."""

import json
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rl_sentinel.audit.sandbox.limits import die_with_parent
from rl_sentinel.core.errors import SentinelError

#: A function that sends one event to the parent; the work receives it as its argument.
Send = Callable[[dict[str, Any]], None]


def forked_events(work: Callable[[Send], None]) -> list[dict[str, Any]]:
    """The events that ``work`` sends, run in a forked child with one thread and no output.

    Raises:
        SentinelError: if the work fails as a whole, or the child dies.
    """
    reader, writer = os.pipe()
    with tempfile.NamedTemporaryFile(prefix="rl-sentinel-") as log:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about threads in the parent: the child starts none
            pid = os.fork()
        if pid == 0:
            os.close(reader)
            _run(work, writer, log.name)
        os.close(writer)
        status = None
        try:
            with os.fdopen(reader, encoding="utf-8") as lines:
                events = [json.loads(line) for line in lines]
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        finally:
            if status is None:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        tail = Path(log.name).read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    failure = next((event["message"] for event in events if event["event"] == "failed"), "")
    if failure:
        raise SentinelError(failure)
    if status:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        killed = " for lack of memory or" if status == -signal.SIGKILL else ""
        raise SentinelError(
            f"the check {how} before it finished, maybe{killed} because of the function; last line of the check's "
            f"output: {(tail or ['no output'])[0][:200]}"
        )
    return events


def _run(work: Callable[[Send], None], pipe: int, log: str) -> None:
    """Do the work in the child, then end the child."""
    status = 70
    try:
        die_with_parent()
        output = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - stays open until the process ends
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - stays open until the process ends
        warnings.simplefilter("ignore")
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        torch.set_num_threads(1)
        if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):  # torch 2.6 and newer
            torch.compiler.set_stance("force_eager")  # a compiler's threads do not survive the fork
        with os.fdopen(pipe, "w", buffering=1, encoding="utf-8") as out:

            def send(event: dict[str, Any]) -> None:
                out.write(json.dumps(event) + "\n")

            try:
                work(send)
            except BaseException as error:  # noqa: BLE001 - the parent raises it in one line
                message = str(error) if isinstance(error, SentinelError) else f"{type(error).__name__}: {error}"
                if not isinstance(error, Exception):
                    message = f"the function tried to end the process ({message})"
                send({"event": "failed", "message": " ".join(message.split())})
        status = 0
    finally:
        os._exit(status)
