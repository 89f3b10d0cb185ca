"""The peak of a process's memory while something runs, above what it held before."""

import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any


def peak_above(call: Callable[[], Any]) -> int:
    """Bytes of resident memory at the peak of a call, above those before it; what it returns lives until then."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # free memory that malloc keeps would hide part of the peak
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux: the peak starts again at the present size
    before = _status("VmRSS")
    result = call()
    peak = _status("VmHWM")
    del result
    return peak - before


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None  # noqa: S101 - Linux has both
    return int(found[1]) * 1024
