"""Work in a forked child of this process: its events come back, its failures are one line."""

import os
import signal

import pytest

from rl_sentinel.audit.sandbox.forked_events import Send, forked_events
from rl_sentinel.core.errors import SentinelError


def test_events_come_back_from_another_process() -> None:
    (event,) = forked_events(lambda send: send({"event": "x", "pid": os.getpid()}))
    assert event["pid"] != os.getpid()


def test_a_failure_is_one_line() -> None:
    def fail(send: Send) -> None:
        raise KeyError("a\nb")

    with pytest.raises(SentinelError, match=r"^KeyError: "):
        forked_events(fail)


def test_a_dead_child_is_named() -> None:
    def die(send: Send) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(
        SentinelError,
        match=r"^the check was killed by SIGKILL before it finished, maybe for lack .* output: no output$",
    ):
        forked_events(die)
