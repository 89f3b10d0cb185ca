"""Limits of a process, and its end with the one that started it."""

import os
import subprocess
import sys
import time
from pathlib import Path

from rl_sentinel.audit.sandbox import limits


def _run(code: str) -> subprocess.CompletedProcess[str]:
    lines = f"from rl_sentinel.audit.sandbox import limits\n{code}"
    return subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=False)


def test_memory_beyond_the_limit_is_refused() -> None:
    tries = "\ntry:\n    bytes(2**29)\nexcept MemoryError:\n    print('no')\n"
    soft = _run("limits.limit_memory(2**28, permanent=False)\nbytes(2**20)" + tries)
    assert soft.stdout == "no\n"
    lower = "import resource\nprint(resource.getrlimit(resource.RLIMIT_AS)[1] == resource.RLIM_INFINITY)"
    hard = _run("limits.limit_memory(2**28, permanent=True)\nbytes(2**20)" + tries + lower)
    assert hard.stdout == "no\nFalse\n"


def test_processor_time_is_read() -> None:
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    assert limits.cpu_seconds(os.getpid()) >= 0.05
    assert limits.cpu_seconds(2**22 + 1) == 0.0


def test_process_ends_with_its_parent() -> None:
    child = (
        "from rl_sentinel.audit.sandbox import limits; limits.die_with_parent(); print(1, flush=True); "
        "import time; time.sleep(600)"
    )
    parent = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "p.stdout.readline(); print(p.pid, flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    process.kill()
    process.communicate()
    end = time.monotonic() + 10
    while _alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
