"""A pulse is seen from the other side of a fork."""

import os

import pytest

from rl_sentinel.audit.sandbox import heartbeat as pulse


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_parent_counts_the_beats_of_its_child() -> None:
    shared = pulse.CallCounter()
    pid = os.fork()
    if not pid:
        pulse.adopt(shared)
        pulse.beat()
        pulse.beat()
        os._exit(0)
    os.waitpid(pid, 0)
    assert shared.count == 2
    shared.close()
