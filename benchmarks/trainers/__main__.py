"""Both sides in one run, a step each in turn, and the page of what was seen: ``make bench-train``."""

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

#: Steps that are not counted: what is made at the start, and the allocator's first pages.
FIRST = 10

#: Prices of the KL in the loss; 0 is without a reference.
PRICES = (0.0, 0.04)

Steps = list[dict[str, Any]]


def run(seed: int, steps: int, price: float) -> list[Steps]:
    """Every step of both sides, each a process of its own that is idle while the other works."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    seen: list[Steps] = [[] for _ in SIDES]
    with ExitStack() as stack:
        sides = []
        for name in SIDES:
            command = [sys.executable, "-m", f"benchmarks.trainers.{name}", str(seed), str(steps), str(price)]
            pipe = subprocess.PIPE
            side = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
            sides.append(stack.enter_context(side))
        for _ in range(steps):
            for name, side, found in zip(SIDES, sides, seen, strict=True):
                found.append(_turn(name, side))
        for side in sides:
            side.communicate("\n")
    return seen


def _turn(name: str, side: "subprocess.Popen[str]") -> dict[str, Any]:
    assert side.stdin is not None  # noqa: S101 - piped
    assert side.stdout is not None  # noqa: S101 - piped
    side.stdin.write("\n")
    side.stdin.flush()
    for line in side.stdout:
        if line.startswith('{"seconds"'):
            found: dict[str, Any] = json.loads(line)
            return found
    sys.exit(f"{name} ended with {side.wait()}: its own words stand above")


def _rows(seeds: int, steps: int, price: float) -> Iterator[str]:
    ratios, shown = [], sorted({1, *(n for n in (10, 20, 40, 80) if n < steps), steps})
    for seed in range(seeds):
        seen = run(seed, steps, price)
        times = [[s["seconds"] * 1e3 for s in side[FIRST:]] for side in seen]
        middle = [statistics.median(t) for t in times]
        ratios.append(sum(times[1]) / sum(times[0]))
        for name, side, own, mid in zip(SIDES, seen, times, middle, strict=True):
            curve = [_around(side, n) for n in shown]
            ratio = f"{ratios[-1]:.2f}" if name != SIDES[0] else ""
            cells = [f"{price:g}", str(seed), name, f"{statistics.fmean(own):.1f}", f"{mid:.1f}", ratio, *curve]
            yield f"| {' | '.join(cells)} |"
    yield f"\nKL {price:g}: ratio {min(ratios):.2f} to {max(ratios):.2f}, mean {statistics.fmean(ratios):.2f}."


def _around(side: Steps, step: int) -> str:
    """Accuracy up to a step, over at most five of them."""
    part: Sequence[dict[str, Any]] = side[max(0, step - 5) : step]
    return f"{statistics.fmean(s['accuracy'] for s in part):.2f}"


def main() -> None:
    """Compare, and rewrite the page's figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--steps", type=int, default=120)
    given = options.parse_args()
    shown = sorted({1, *(n for n in (10, 20, 40, 80) if n < given.steps), given.steps})
    heads = ["KL", "seed", "side", "mean ms", "median ms", "ratio of means", *(f"accuracy at {n}" for n in shown)]
    lines = [f"{machine()}; {made()}."]
    for price in PRICES:
        lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for line in _rows(given.seeds, given.steps, price):
            lines.append(line)
            print(line, flush=True)  # noqa: T201 - what was asked for
    head = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(head + "\n".join([MARK, "", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
