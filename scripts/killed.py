"""Kill a run at random moments, resume it each time, and compare its metrics with an uninterrupted one's."""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = [sys.executable, "-c", "from rl_sentinel.cli.main import run; run()", "train"]


def main() -> None:
    """Exit 0 if the bytes are equal."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("recipe")
    options.add_argument("overrides", nargs="*")
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument(
        "--within", type=float, default=1.0, help="most seconds from a run's first new step to its kill"
    )
    options.add_argument("--early", type=float, default=0.0005, help="chance, each 20 ms, of a kill before that")
    given = options.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as home:
        whole, again = Path(home) / "whole", Path(home) / "again"
        _run(given, whole).wait()
        kills, moments = 0, []
        while kills < given.kills:
            process, before = _run(given, again), _lines(again)
            while process.poll() is None and _lines(again) == before and chance.random() > given.early:
                time.sleep(0.02)
            time.sleep(chance.random() * given.within)
            if process.poll() is not None:
                print(f"done after {kills} kills")  # noqa: T201 - a script's own output
                break
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            aside = list((again / "checkpoints").glob(".aside*")) if again.exists() else []
            moments.append(f"{_lines(again)}{'*' if aside else ''}")
        _run(given, again).wait()
        one, two = ((p / "metrics.jsonl").read_bytes() for p in (whole, again))
        print(f"killed {kills} times, at steps {' '.join(moments)} (* during a checkpoint)")  # noqa: T201
        print("equal" if one == two else "NOT EQUAL", len(one), "bytes")  # noqa: T201
        sys.exit(one != two)


def _lines(out: Path) -> int:
    metrics = out / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def _run(given: argparse.Namespace, out: Path) -> "subprocess.Popen[bytes]":
    command = [*RUN, given.recipe, *given.overrides, f"out={out}"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


main()
