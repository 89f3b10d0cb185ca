"""Find the descendants of a process, and wait until they have ended."""

import time
from pathlib import Path


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def descendants(pid: int) -> set[int]:
    parents = {int(p.name): _stat(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit()}
    descendants, new = set[int](), {pid}
    while new:
        new = {child for child, stat in parents.items() if stat and int(stat[1]) in new} - descendants
        descendants |= new
    return descendants


def wait_until_ended(pids: set[int], seconds: float = 20.0) -> bool:
    """Whether all end within some seconds; a zombie has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if all(_stat(pid)[:1] in ([], ["Z"]) for pid in pids):
            return True
        time.sleep(0.1)
    return False
