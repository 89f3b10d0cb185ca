"""Run both sides, one step each in turn, and write the figures into README.md: ``make bench-train``."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.__main__ import MARK, machine, made

PAGE = Path(__file__).parent / "README.md"
SIDES = ("ours", "trl")

#: Steps that are not counted, since they include one-time setup.
SETUP_STEPS = 10

#: Coefficients of the KL in the loss; 0 means no reference.
KL_COEFFICIENTS = (0.0, 0.04)

Steps = list[dict[str, Any]]


def run(seed: int, steps: int, kl: float) -> list[Steps]:
    """All steps of both sides; each side is a process that idles while the other works."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    results: list[Steps] = [[] for _ in SIDES]
    with ExitStack() as stack:
        sides = []
        for name in SIDES:
            command = [sys.executable, "-m", f"benchmarks.trainers.{name}", str(seed), str(steps), str(kl)]
            pipe = subprocess.PIPE
            side = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
            sides.append(stack.enter_context(side))
        for _ in range(steps):
            for name, side, steps_done in zip(SIDES, sides, results, strict=True):
                steps_done.append(_turn(name, side))
        for side in sides:
            side.communicate("\n")
    return results


def _turn(name: str, side: "subprocess.Popen[str]") -> dict[str, Any]:
    assert side.stdin is not None  # noqa: S101 - piped
    assert side.stdout is not None  # noqa: S101 - piped
    side.stdin.write("\n")
    side.stdin.flush()
    for line in side.stdout:
        if line.startswith('{"seconds"'):
            step: dict[str, Any] = json.loads(line)
            return step
    sys.exit(f"{name} ended with {side.wait()}: see its output above")


def _rows(seeds: int, steps: int, kl: float) -> Iterator[str]:
    ratios, shown = [], sorted({1, *(n for n in (10, 20, 40, 80) if n < steps), steps})
    for seed in range(seeds):
        results = run(seed, steps, kl)
        times = [[s["seconds"] * 1e3 for s in side[SETUP_STEPS:]] for side in results]
        medians = [statistics.median(t) for t in times]
        ratios.append(sum(times[1]) / sum(times[0]))
        for name, side, own, median in zip(SIDES, results, times, medians, strict=True):
            curve = [_accuracy(side, n) for n in shown]
            ratio = f"{ratios[-1]:.2f}" if name != SIDES[0] else ""
            cells = [f"{kl:g}", str(seed), name, f"{statistics.fmean(own):.1f}", f"{median:.1f}", ratio, *curve]
            yield f"| {' | '.join(cells)} |"
    yield f"\nKL {kl:g}: ratio {min(ratios):.2f} to {max(ratios):.2f}, mean {statistics.fmean(ratios):.2f}."


def _accuracy(side: Steps, step: int) -> str:
    """Mean accuracy of the last five steps up to a step."""
    part: Sequence[dict[str, Any]] = side[max(0, step - 5) : step]
    return f"{statistics.fmean(s['accuracy'] for s in part):.2f}"


def main() -> None:
    """Compare both sides, and rewrite the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=120)
    options = parser.parse_args()
    shown = sorted({1, *(n for n in (10, 20, 40, 80) if n < options.steps), options.steps})
    heads = ["KL", "seed", "side", "mean ms", "median ms", "ratio of means", *(f"accuracy at {n}" for n in shown)]
    lines = [f"{machine()}; {made()}."]
    for kl in KL_COEFFICIENTS:
        lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for line in _rows(options.seeds, options.steps, kl):
            lines.append(line)
            print(line, flush=True)  # noqa: T201 - output of a command
    head = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(head + "\n".join([MARK, "", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
