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

import torch

from benchmarks.__main__ import MARK, machine, made
from benchmarks.trainers.common import Comparison, add_arguments

PAGE = Path(__file__).parent / "README.md"
SIDES = ("ours", "trl")

#: Steps that are not counted, since they include one-time setup.
SETUP_STEPS = 10

Steps = list[dict[str, Any]]


def run(comparison: Comparison) -> list[Steps]:
    """All steps of both sides; each side is a process that idles while the other works."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    results: list[Steps] = [[] for _ in SIDES]
    with ExitStack() as stack:
        sides = []
        for name in SIDES:
            command = [sys.executable, "-m", f"benchmarks.trainers.{name}", comparison.to_json()]
            pipe = subprocess.PIPE
            side = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
            sides.append(stack.enter_context(side))
        for _ in range(comparison.steps):
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


def _rows(comparisons: Sequence[Comparison], shown: Sequence[int]) -> Iterator[str]:
    """A row per seed and side, then the ratio."""
    ratios, kl = [], f"{comparisons[0].kl:g}"
    for comparison in comparisons:
        results = run(comparison)
        times = [[s["seconds"] * 1e3 for s in side[SETUP_STEPS:]] for side in results]
        medians = [statistics.median(t) for t in times]
        ratios.append(sum(times[1]) / sum(times[0]))
        for name, side, own, median in zip(SIDES, results, times, medians, strict=True):
            curve = [_accuracy(side, n) for n in shown]
            ratio = f"{ratios[-1]:.2f}" if name != SIDES[0] else ""
            cells = [kl, str(comparison.seed), name, f"{statistics.fmean(own):.1f}", f"{median:.1f}", ratio, *curve]
            yield f"| {' | '.join(cells)} |"
    yield f"\nKL {kl}: ratio {min(ratios):.2f} to {max(ratios):.2f}, mean {statistics.fmean(ratios):.2f}."


def _accuracy(side: Steps, step: int) -> str:
    """Mean accuracy of the last five steps up to a step."""
    part: Sequence[dict[str, Any]] = side[max(0, step - 5) : step]
    return f"{statistics.fmean(s['accuracy'] for s in part):.2f}"


def main() -> None:
    """Compare both sides, and rewrite the section of the page with these choices."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    options = parser.parse_args()
    steps, device, name = options.steps, options.device, options.recipe
    shown = sorted({1, *(n for n in (10, 20, 40, 80) if n < steps), steps})
    heads = ["KL", "seed", "side", "mean ms", "median ms", "ratio of means", *(f"accuracy at {n}" for n in shown)]
    gpu = f"{torch.cuda.get_device_name()}; " if device == "cuda" else ""
    title = f"## {name}{' with LoRA' * options.lora} on {device}"
    lines = [title, "", f"{gpu}{machine()}; {made()}."]
    for kl in options.kl:
        lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        comparisons = [Comparison(name, device, seed, steps, kl, options.lora) for seed in range(options.seeds)]
        for line in _rows(comparisons, shown):
            lines.append(line)
            print(line, flush=True)  # noqa: T201 - output of a command
    PAGE.write_text(_with_section(PAGE.read_text(encoding="utf-8"), title, "\n".join(lines)), encoding="utf-8")


def _with_section(page: str, title: str, section: str) -> str:
    """The page with the section of this title replaced, or added at the end; the figures begin at the mark."""
    head, _, figures = page.partition(MARK)
    sections = [part.strip() for part in f"\n{figures.strip()}".split("\n## ") if part.strip()]
    titled = {f"## {part.partition(chr(10))[0]}": f"## {part}" for part in sections}
    return head + "\n\n".join([MARK, *(titled | {title: section}).values()]) + "\n"


if __name__ == "__main__":
    main()
