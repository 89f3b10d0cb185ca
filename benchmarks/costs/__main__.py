"""Run all and write the figures into README.md: ``python -m benchmarks.costs``."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.__main__ import MARK, machine, made
from benchmarks.costs.projection import HIDDEN, VOCABULARY

PAGE = Path(__file__).parent / "README.md"

#: Bytes of the gradients of the head's weight and the hidden states, which both sides return.
RETURNED = 4 * HIDDEN * (VOCABULARY + 1024)


def _rows(*words: str) -> list[dict[str, Any]]:
    """The JSON lines of a process of its own."""
    command, environment = [sys.executable, "-m", *words], os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _table(heads: Sequence[str], rows: Iterator[Sequence[str]]) -> list[str]:
    return ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def _projection() -> Iterator[Sequence[str]]:
    module = "benchmarks.costs.projection"
    both = zip(_rows(module, "memory-ours"), _rows(module, "memory-logits"), _rows(module, "time"), strict=True)
    for ours, theirs, time in both:
        returned = RETURNED if time["run"] == "gradient" else 0
        peaks = [row["peak"] - returned for row in (ours, theirs)]
        yield (
            f"{time['part']}, {time['run']}",
            *(f"{peak / 2**20:.0f}" for peak in peaks),
            f"1/{peaks[1] / peaks[0]:.0f}",
            f"{time['ours'] / time['theirs']:.2f}",
            f"{time['float32']:.0e}",
            f"{time['float64']:.0e}",
        )


def _rewards() -> Iterator[Sequence[str]]:
    for row in _rows("benchmarks.costs.rewards"):
        counts = (str(row["rewards"]), str(row["failures"]))
        yield row["function"], f"{row['least']:.2f}", f"{row['most']:.2f}", *counts


def _ranks() -> Iterator[Sequence[str]]:
    alone = {row["kl"]: row["peak"] for row in _rows("benchmarks.costs.ranks", "1")}
    for size in (1, 2, 4):
        rows = _rows("benchmarks.costs.ranks", str(size))
        for kl in (False, True):
            peak = max(row["peak"] for row in rows if row["kl"] == kl)
            yield str(size), "yes" if kl else "no", f"{peak / 2**20:.0f}", f"{peak / alone[kl]:.2f}"


def main() -> None:
    """Rewrite the figures."""
    lines = [MARK, "", f"{machine()}; {made()}."]
    heads = ["computed", "ours, MiB", "with logits, MiB", "memory", "time", "float32", "float64"]
    lines += _table(heads, _projection())
    lines += _table(["function", "least, s", "most, s", "rewards", "failures"], _rewards())
    lines += _table(["processes", "KL", "largest peak, MiB", "of one process"], _ranks())
    head = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(head + "\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
