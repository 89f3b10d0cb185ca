"""Limits on memory, processor time and wall-clock time of worker processes, which die with their parent process."""

import ctypes
import os
import resource
import signal
import sys

#: Most seconds of processor time for one call of a boundary, and for one law at a boundary.
CALL_CPU_SECONDS, PAIR_CPU_SECONDS = 15.0, 60.0

#: Most seconds of wall-clock time for the same. A call that used more than the share ``ASLEEP`` of its wall-clock time
#: on the processor did not sleep, but was slowed down by other processes.
CALL_CLOCK_SECONDS, PAIR_CLOCK_SECONDS, ASLEEP = 60.0, 240.0, 0.02

#: Seconds of processor time after which the stack of a call is read, once another call has hung in the same target.
SUSPECT_CPU_SECONDS = 0.5

#: Seconds of wall-clock time after which it is read, for functions in which a call slept or waited.
SUSPECT_CLOCK_SECONDS = 5.0

#: Memory in bytes that a child may use in addition to the loaded worker, and that the worker may use while loading.
CHILD_MEMORY, LOADING_MEMORY = 6 * 2**30, 16 * 2**30

_PR_SET_PDEATHSIG = 1


def limit_memory(more: int, *, permanent: bool) -> None:
    """Allow ``more`` bytes of address space beyond the bytes in use; disable core dumps.

    ``permanent`` also lowers the hard limit, which cannot be raised again.
    """
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - a fixed path
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + more
    hard = most if permanent else resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def die_with_parent() -> None:
    """On Linux, make the kernel kill this process when its parent ends for any reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, in seconds; 0 if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            parts = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")
