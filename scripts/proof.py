"""What is too long for the checks, or needs git histories: run, and written to docs/proof.md.

Histories by path: SLIME=PATH AREAL=PATH make proof. What is not given is said to be not run.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from repair import repaired

from rl_sentinel.audit.cache import home

HERE = Path(__file__).parents[1]
MAIN = "verl==0.9.1"
OLDER = ("verl==0.2.0.post2", "verl==0.4.1", "verl==0.6.1", "verl==0.8.0")

#: Variable with the history, framework, faulty revision, fixed revision, law, boundary.
HISTORIES = (
    ("AREAL", "areal", "cdc1c4783~2", "cdc1c4783", "MSK003", "*_compute_advantages"),
    ("SLIME", "slime", "045310b2b~1", "045310b2b", "MET004", "*compute_advantages_and_returns"),
    ("SLIME", "slime", "624b824a8", "ff40142cd", "SCP001", "*compute_opsm_mask"),
)


def sentinel(*arguments: str) -> tuple[int, str]:
    """Run the command line; its status and what it printed."""
    command = [sys.executable, "-c", "from rl_sentinel.cli.main import run; run()", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + run.stderr


def audited(target: str, *more: str) -> dict[str, Any]:
    """The JSON report of an audit."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out.json"
        status, said = sentinel("audit", target, *more, "--json", str(out))
        if status > 1:
            raise SystemExit(f"audit of {target} ended with {status}: {said}")
        return dict(json.loads(out.read_text(encoding="utf-8")))


def timing() -> list[str]:
    """Line F: the main job and older releases, with processor time."""
    lines = [
        "| target | seconds | processor seconds | holds | broken | not applicable | errored |",
        "|---|---|---|---|---|---|---|",
    ]
    for target in (MAIN, *OLDER):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        counts = audited(target)["counts"]
        after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        lines.append(f"| {target} | {seconds:.0f} | {used:.0f} | " + " | ".join(str(n) for n in counts.values()) + " |")
    return lines


def repair() -> list[str]:
    """Line C: which findings a repair of the GRPO estimator takes away, and what replay says."""
    before = audited(MAIN)
    with tempfile.TemporaryDirectory() as scratch:
        copy = repaired(home() / "releases" / "verl-0.9.1", Path(scratch) / "copy")
        after = audited(f"verl@{copy}")
        record = next(
            f["evidence"]
            for f in before["findings"]
            if f["signature"].endswith("MSK001:verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage:default")
        )
        file = Path(scratch) / "evidence.json"
        file.write_text(json.dumps(record), encoding="utf-8")
        status, said = sentinel("replay", str(file), f"verl@{copy}")

    def broken(report: dict[str, Any]) -> set[str]:
        return {f"{v['law']} {v['boundary']} [{v['setting']}]" for v in report["verdicts"] if v["outcome"] == "broken"}

    lost, gained = broken(before) - broken(after), broken(after) - broken(before)
    return [
        f"replay of the evidence on the copy: exit {status}, `{said.strip().split(':')[0]}`",
        "",
        *(f"- lost: {x}" for x in sorted(lost)),
        *(f"- gained: {x}" for x in sorted(gained)),
    ]


def histories() -> list[str]:
    """Line A2: the seeds that live in git histories."""
    lines = []
    for variable, name, faulty, fixed, law, boundary in HISTORIES:
        path = os.environ.get(variable, "")
        if not path:
            lines.append(f"- {name} {law}: not run, {variable} is not set")
            continue
        report = audited(f"{name}@{path}#{faulty}", "--law", law, "--boundary", boundary)
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "out.json"
            file.write_text(json.dumps(report), encoding="utf-8")
            there, _ = sentinel("replay", str(file), f"{name}@{path}#{faulty}")
            after, said = sentinel("replay", str(file), f"{name}@{path}#{fixed}")
        found = ", ".join(f["signature"] for f in report["findings"]) or "nothing"
        replays = f"replay there exits {there}; at {fixed} exits {after} ({said.strip()[:60]})"
        lines.append(f"- {name} {faulty}: found {found}; {replays}")
    return lines


def main() -> None:
    """Write docs/proof.md."""
    parts = ["# Proof", "", "Written by `make proof`.", "", "## Releases and their cost", "", *timing()]
    parts += ["", "## A repaired copy", "", *repair(), "", "## Seeds in git histories", "", *histories(), ""]
    (HERE / "docs" / "proof.md").write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
