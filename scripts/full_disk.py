"""Train on a disk that is full, at several degrees, make room, and compare with a run that had room from the start.

The folder must lie on a small file system of its own, which is filled: ``mount -t tmpfs -o size=5m tmpfs FOLDER``.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = [sys.executable, "-c", "from rl_sentinel.cli.main import run; run()", "train", "--uncertified"]

#: KiB that are left free: not for a file, for a few lines, for a line of metrics, for one checkpoint, for two.
LEFT = (0, 4, 8, 64, 1024, 1536, 2560)


def main() -> None:
    """Exit 0 if each run stopped with a line that says why, and came to the same bytes once there was room."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("folder", type=Path)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    sound = True
    with tempfile.TemporaryDirectory() as home:
        whole = Path(home) / "whole"
        _run(options, whole)
        expected = (whole / "metrics.jsonl").read_bytes()
        for left in LEFT:
            out, ballast = options.folder / f"left-{left}", options.folder / "ballast"
            _fill(ballast, left)
            first = _run(options, out)
            ballast.unlink()
            second = _run(options, out)
            metrics = out / "metrics.jsonl"
            equal = metrics.exists() and metrics.read_bytes() == expected
            words = first.stderr.strip().splitlines()
            plain = first.returncode == 2 and "cannot be written" in words[-1] and "Traceback" not in first.stderr
            sound &= plain and equal and second.returncode == 0
            said = words[-1] if first.returncode and words else ""
            print(f"{left} KiB left: exit {first.returncode}, {said}")  # noqa: T201 - a script's own output
            print(f"    with room: exit {second.returncode}, {'equal' if equal else 'NOT EQUAL'}")  # noqa: T201
            shutil.rmtree(out)
    sys.exit(not sound)


def _fill(ballast: Path, left: int) -> None:
    """Zeros until only so many KiB are left."""
    free = os.statvfs(ballast.parent)
    with ballast.open("wb") as file:
        file.write(b"\0" * max(0, free.f_bavail * free.f_frsize - left * 1024))


def _run(options: argparse.Namespace, out: Path) -> "subprocess.CompletedProcess[str]":
    command = [*RUN, options.recipe, *options.overrides, f"out={out}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


main()
