"""What is too long for the checks, or needs git histories: run, and written to docs/proof.md.

Histories and checkouts by path: SLIME=PATH AREAL=PATH TRL=PATH SKYRL=PATH make proof (VERL=PATH for another verl than
the released one). What is not given is said to be not run.
"""

import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import copies
import cost
import finding_scripts
import histories
import published
import seeds
import torch

from rl_sentinel.core.errors import SentinelError

PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "Releases and their cost": cost.lines,
    "Accidents in a copy": copies.accidents,
    "A repaired copy": copies.repair,
    "Seeds of the search": seeds.lines,
    "Scripts of findings": finding_scripts.all_lines,
    "Known cases in git histories": histories.lines,
    "Tests that peers publish": published.lines,
}


def main() -> None:
    """Write docs/proof.md, whatever goes wrong in a part; then end with what did."""
    wrong = []
    machine = f"Python {platform.python_version()}, torch {torch.__version__}"
    git = ["git", "rev-parse", "--short", "HEAD"]
    at = subprocess.run(git, capture_output=True, text=True, check=True).stdout
    text = [
        "# Proof",
        "",
        f"Written by `SLIME=PATH AREAL=PATH TRL=PATH SKYRL=PATH make proof` at {at.strip()}, with {machine}.",
    ]
    for title, part in PARTS.items():
        sys.stderr.write(f"{title}\n")
        text += ["", f"## {title}", ""]
        try:
            for line in part():
                text.append(line)
        except SentinelError as error:
            wrong.append(str(error))
            text += ["", *(f"- unexpected: {line}" for line in str(error).splitlines())]
    Path("docs/proof.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
