"""Processes below another one, and whether they are still there."""

import time
from pathlib import Path


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def below(pid: int) -> set[int]:
    """All descendants of a process."""
    parents = {int(p.name): _stat(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit()}
    found, new = set[int](), {pid}
    while new:
        new = {child for child, stat in parents.items() if stat and int(stat[1]) in new} - found
        found |= new
    return found


def gone(pids: set[int], seconds: float = 20.0) -> bool:
    """Whether they end within some seconds; one that is dead and not yet buried has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if all(_stat(pid)[:1] in ([], ["Z"]) for pid in pids):
            return True
        time.sleep(0.1)
    return False
