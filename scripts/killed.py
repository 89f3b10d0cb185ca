"""Kill a run at random moments, resume it each time, and compare its metrics with an uninterrupted one's.

With ``--processes 2`` one of them is killed or all are, as chance has it; those that are left must end by themselves.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = [sys.executable, "-c", "from rl_sentinel.cli.main import run; run()", "train"]

#: Seconds that processes have to end by themselves once another was killed.
PATIENCE = 120

Processes = list["subprocess.Popen[bytes]"]


def main() -> None:
    """Exit 0 if no step was lost or counted twice, and, of one process, the bytes are equal."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("recipe")
    options.add_argument("overrides", nargs="*")
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--processes", type=int, default=1)
    options.add_argument(
        "--within", type=float, default=1.0, help="most seconds from a run's first new step to its kill"
    )
    options.add_argument("--early", type=float, default=0.0005, help="chance, each 20 ms, of a kill before that")
    given = options.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as home:
        whole, again = Path(home) / "whole", Path(home) / "again"
        if any(_ended(_run(given, whole))):
            sys.exit("the uninterrupted run failed: run it by rl-sentinel train to read why")
        kills, moments = 0, []
        while kills < given.kills:
            running, before = _run(given, again), len(_steps(again))
            while _going(running) and len(_steps(again)) == before and chance.random() > given.early:
                time.sleep(0.02)
            time.sleep(chance.random() * given.within)
            if not _going(running):
                print(f"done after {kills} kills")  # noqa: T201 - a script's own output
                break
            met = len(_steps(again)) > before  # one that has not met the others waits for them, half an hour
            alone = given.processes > 1 and chance.random() < 0.5 and met
            for process in [chance.choice(running)] if alone else running:
                process.send_signal(signal.SIGKILL)
            _ended(running, PATIENCE)
            kills += 1
            aside = list((again / "checkpoints").glob(".aside*")) if again.exists() else []
            moments.append(f"{len(_steps(again))}{'*' if aside else ''}{'!' if alone else ''}")
        codes = _ended(_run(given, again))
        one, two = ((p / "metrics.jsonl").read_bytes() for p in (whole, again))
        counted = [json.loads(line)["step"] for line in two.splitlines()]
        once = not any(codes) and counted == list(range(1, len(one.splitlines()) + 1))
        print(f"killed {kills} times, at steps {' '.join(moments)} (* during a checkpoint, ! one of several alone)")  # noqa: T201
        print(f"{len(counted)} steps,", "each once" if once else "SOME LOST OR COUNTED TWICE")  # noqa: T201
        print("equal" if one == two else "NOT EQUAL", len(one), "bytes")  # noqa: T201
        sys.exit(not once or (one != two and given.processes == 1))


def _steps(out: Path) -> list[bytes]:
    metrics = out / "metrics.jsonl"
    return metrics.read_bytes().splitlines() if metrics.exists() else []


def _going(running: Processes) -> bool:
    return all(process.poll() is None for process in running)


def _ended(running: Processes, patience: float | None = None) -> list[int]:
    """Exit codes, once all have ended."""
    return [process.wait(timeout=patience) for process in running]


def _run(given: argparse.Namespace, out: Path) -> Processes:
    command = [*RUN, given.recipe, *given.overrides, f"out={out}"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    joined = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(given.processes)}
    env = os.environ | {"OMP_NUM_THREADS": "1"} | (joined if given.processes > 1 else {})
    nothing = subprocess.DEVNULL
    return [
        subprocess.Popen(command, env=env | {"RANK": str(n)}, stdout=nothing, stderr=nothing)
        for n in range(given.processes)
    ]


main()
