"""Kill a run at random moments, resume it each time, and compare its metrics with those of an uninterrupted run.

With ``--processes 2`` either one process or all of them are killed; the others must end by themselves.
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

RUN = [sys.executable, "-c", "from rl_sentinel.cli.main import run; run()", "train", "--uncertified"]

#: Seconds in which processes must end after another was killed.
EXIT_TIMEOUT = 120

Processes = list["subprocess.Popen[bytes]"]


def main() -> None:
    """Exit 0 if each step was done once and, with one process, the bytes are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--within", type=float, default=1.0, help="maximum seconds from a run's first new step to its kill"
    )
    parser.add_argument("--early", type=float, default=0.0005, help="probability per 20 ms of a kill before that step")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as home:
        uninterrupted, resumed = Path(home) / "uninterrupted", Path(home) / "resumed"
        if any(_wait(_run(options, uninterrupted))):
            sys.exit("the uninterrupted run failed: run it with rl-sentinel train to see its message")
        kills, moments = 0, []
        while kills < options.kills:
            running, before = _run(options, resumed), len(_steps(resumed))
            while _alive(running) and len(_steps(resumed)) == before and rng.random() > options.early:
                time.sleep(0.02)
            time.sleep(rng.random() * options.within)
            if not _alive(running):
                print(f"done after {kills} kills")  # noqa: T201 - output of a script
                break
            connected = len(_steps(resumed)) > before  # before that, the others wait half an hour to connect
            only_one = options.processes > 1 and rng.random() < 0.5 and connected
            for process in [rng.choice(running)] if only_one else running:
                process.send_signal(signal.SIGKILL)
            _wait(running, EXIT_TIMEOUT)
            kills += 1
            aside = list((resumed / "checkpoints").glob(".aside*")) if resumed.exists() else []
            moments.append(f"{len(_steps(resumed))}{'*' if aside else ''}{'!' if only_one else ''}")
        codes = _wait(_run(options, resumed))
        one, two = ((p / "metrics.jsonl").read_bytes() for p in (uninterrupted, resumed))
        counted = [json.loads(line)["step"] for line in two.splitlines()]
        once = not any(codes) and counted == list(range(1, len(one.splitlines()) + 1))
        print(f"killed {kills} times, at steps {' '.join(moments)} (* during a checkpoint, ! one process only)")  # noqa: T201
        print(f"{len(counted)} steps,", "each once" if once else "SOME LOST OR REPEATED")  # noqa: T201
        print("equal" if one == two else "NOT EQUAL", len(one), "bytes")  # noqa: T201
        sys.exit(not once or (one != two and options.processes == 1))


def _steps(out: Path) -> list[bytes]:
    metrics = out / "metrics.jsonl"
    return metrics.read_bytes().splitlines() if metrics.exists() else []


def _alive(running: Processes) -> bool:
    return all(process.poll() is None for process in running)


def _wait(running: Processes, timeout: float | None = None) -> list[int]:
    """Exit codes of all processes."""
    return [process.wait(timeout=timeout) for process in running]


def _run(options: argparse.Namespace, out: Path) -> Processes:
    command = [*RUN, options.recipe, *options.overrides, f"out={out}"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    addresses = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(options.processes)}
    env = os.environ | {"OMP_NUM_THREADS": "1"} | (addresses if options.processes > 1 else {})
    nothing = subprocess.DEVNULL
    return [
        subprocess.Popen(command, env=env | {"RANK": str(n)}, stdout=nothing, stderr=nothing)
        for n in range(options.processes)
    ]


main()
