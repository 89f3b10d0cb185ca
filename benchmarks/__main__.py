"""All peers, one process each, and the page of what was seen: ``make bench``, or ``python -m benchmarks [PEER...]``."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

PEERS = ("verl", "trl", "skyrl", "areal", "openrlhf", *(["slime"] if os.environ.get("SLIME") else []))
PAGE = Path(__file__).parent / "README.md"

#: What stands above the figures, which are rewritten at each run.
MARK = "<!-- figures -->"

#: Comparison -> the least ratio that we set out to reach in plain torch, by part and what of it.
GOALS: Mapping[tuple[str, str], float] = {
    ("GRPO, rewards [B]", "inline"): 1.2,
    ("GRPO", "loop"): 25,
    ("GRPO", "vectorized"): 3,
    ("RLOO", "loop"): 25,
    ("RLOO", "vectorized"): 3,
    ("Pass@k", "loop"): 8,
    ("REINFORCE++ baseline", "loop"): 25,
    ("GAE", "loop over tokens"): 13,
    ("PPO loss and gradient", "eager"): 3,
    ("rollout correction", "eager"): 10,
    ("GAE", "chunked, without a mask"): 1,
    ("OPSM", "eager"): 2,
    ("log-probs and gradient", "eager"): 1.3,
    ("log-probs, entropy and gradient", "eager"): 1.5,
}


def _rows(peers: Sequence[str]) -> Iterator[dict[str, Any]]:
    for peer in peers:
        yield from _told(["benchmarks.child", peer], '{"peer"')


def _told(module: Sequence[str], mark: str) -> Iterator[dict[str, Any]]:
    """The JSON lines of a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *module]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        for line in child.stdout or ():
            if line.startswith(mark):
                yield json.loads(line)
    if child.returncode:
        sys.exit(f"{' '.join(module)} ended with {child.returncode}: its own words stand above")


def _line(row: Mapping[str, Any]) -> str:
    ratio, goal = row["theirs"] / row["ours"], GOALS.get((row["part"], row["form"]), 0)
    floor = f"{row['ours'] / row['floor']:.1f}" if row["floor"] else "-"
    reached = "yes" if ratio >= goal else "no"
    cells = [row["part"], f"{row['peer']}, {row['form']}", row["size"], "yes" if row["same"] else "no"]
    aim = [f"{goal:g}", reached] if goal else ["-", "-"]
    times = [f"{row['ours'] * 1e3:.3g}", f"{row['theirs'] * 1e3:.3g}", f"{ratio:.1f}", *aim, floor]
    return f"| {' | '.join([*cells, *times])} |"


def _growth() -> Iterator[str]:
    """Tables of what our own functions cost at each size."""
    rows = list(_told(["benchmarks.growth"], '{"table"'))
    for table, head in (("tokens", "responses x positions"), ("groups", "responses / groups")):
        seen = {(r["part"], r["size"]): r["ours"] for r in rows if r["table"] == table}
        parts, sizes = (list(dict.fromkeys(key[at] for key in seen)) for at in (0, 1))
        yield from (
            "",
            f"Ours in ms, by {head}:",
            "",
            f"| part | {' | '.join(sizes)} |",
            "|---" * (len(sizes) + 1) + "|",
        )
        yield from (f"| {p} | {' | '.join(f'{seen[p, s] * 1e3:.3g}' for s in sizes)} |" for p in parts)


def machine() -> str:
    """The processor, its cores, and the versions that everything ran on."""
    names = [line for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if "model name" in line]
    chip = names[0].partition(":")[2].strip() if names else platform.machine()
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{chip}, {os.cpu_count()} cores of which one was used, {versions}"


def made() -> str:
    """The day and the commit that the figures were made at; code that differs from it is said to."""
    commit = _git("rev-parse", "--short", "HEAD").stdout.strip() or "unknown"
    changed = _git("diff", "--quiet", "HEAD", "--", "*.py").returncode == 1
    return f"{datetime.now(UTC).date()}, commit {commit}{' with changes' * changed}"


def _git(*words: str) -> "subprocess.CompletedProcess[str]":
    command = ["git", "-C", str(PAGE.parents[1]), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> None:
    """Compare with the peers that are named, or all, and rewrite the page's figures."""
    if "slime" in PEERS and not (Path(os.environ["SLIME"]) / "slime").is_dir():
        sys.exit(f"SLIME is {os.environ['SLIME']}, expected a checkout of it, with its folder slime (a git clone)")
    lines = [
        f"{machine()}; {made()}.",
        "",
        "| part | peer | size | same numbers | ours, ms | theirs, ms | ratio | goal | reached | ours by floor |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in _rows(sys.argv[1:] or PEERS):
        lines.append(_line(row))
        print(lines[-1], flush=True)  # noqa: T201 - what was asked for
    if not sys.argv[1:]:
        lines += _growth()
    head = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(head + "\n".join([MARK, "", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
