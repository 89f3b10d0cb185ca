"""All peers, one process each, and the page of what was seen: ``make bench``, or ``python -m benchmarks [PEER...]``."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

PEERS = ("verl", "trl", "skyrl", "areal", "openrlhf")
PAGE = Path(__file__).parent / "README.md"

#: What stands above the figures, which are rewritten at each run.
MARK = "<!-- figures -->"

#: Comparison -> the least ratio that we set out to reach in plain torch, by part and what of it.
GOALS: Mapping[tuple[str, str], float] = {
    ("GRPO, rewards [B]", "inline"): 1.2,
    ("GRPO", "loop"): 25,
    ("GRPO", "vectorised"): 3,
    ("RLOO", "loop"): 25,
    ("RLOO", "vectorised"): 3,
    ("Pass@k", "loop"): 8,
    ("REINFORCE++ baseline", "loop"): 25,
    ("GAE", "loop over tokens"): 13,
    ("PPO loss and gradient", "eager"): 3,
    ("rollout correction", "eager"): 10,
    ("OPSM", "eager"): 2,
    ("log-probs and gradient", "eager"): 1.3,
    ("log-probs, entropy and gradient", "eager"): 1.5,
}


def _rows(peers: Sequence[str]) -> Iterator[dict[str, Any]]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for peer in peers:
        command = [sys.executable, "-m", "benchmarks.child", peer]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
            for line in child.stdout or ():
                if line.startswith('{"peer"'):
                    yield json.loads(line)
        if child.returncode:
            sys.exit(f"{peer} ended with {child.returncode}: its own words stand above")


def _line(row: Mapping[str, Any]) -> str:
    ratio, goal = row["theirs"] / row["ours"], GOALS[row["part"], row["form"]]
    floor = f"{row['ours'] / row['floor']:.1f}" if row["floor"] else "-"
    reached = "yes" if ratio >= goal else "no"
    cells = [row["part"], f"{row['peer']}, {row['form']}", row["size"], "yes" if row["same"] else "no"]
    times = [f"{row['ours'] * 1e3:.3g}", f"{row['theirs'] * 1e3:.3g}", f"{ratio:.1f}", f"{goal:g}", reached, floor]
    return f"| {' | '.join([*cells, *times])} |"


def _machine() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if "model name" in line]
    chip = names[0].partition(":")[2].strip() if names else platform.machine()
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{chip}, {os.cpu_count()} cores of which one was used, {versions}"


def main() -> None:
    """Compare with the peers that are named, or all, and rewrite the page's figures."""
    lines = [
        f"{_machine()}.",
        "",
        "| part | peer | size | same numbers | ours, ms | theirs, ms | ratio | goal | reached | ours by floor |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in _rows(sys.argv[1:] or PEERS):
        lines.append(_line(row))
        print(lines[-1], flush=True)  # noqa: T201 - what was asked for
    head = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(head + "\n".join([MARK, "", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
