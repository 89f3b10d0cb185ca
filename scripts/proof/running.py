"""The command line, run as a user runs it, with what it cost."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAIN = "verl==0.9.1"


@dataclass(frozen=True, slots=True)
class Ran:
    """One command: its exit status, what it printed, seconds by the clock and of processors."""

    status: int
    said: str
    seconds: float
    processor: float


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def sentinel(*arguments: str) -> Ran:
    """Run ``rl-sentinel`` with these arguments."""
    before, began = _processor(), time.monotonic()
    command = [sys.executable, "-c", "from rl_sentinel.cli.main import run; run()", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return Ran(run.returncode, run.stdout + run.stderr, time.monotonic() - began, _processor() - before)


def audited(target: str, *more: str) -> tuple[dict[str, Any], Ran]:
    """The JSON report of an audit, and the run.

    Raises:
        SystemExit: if the audit could not run.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out.json"
        ran = sentinel("audit", target, "--fresh", *more, "--json", str(out))
        if not out.is_file():
            raise SystemExit(f"audit of {target} ended with {ran.status}: {ran.said}")
        return dict(json.loads(out.read_text(encoding="utf-8"))), ran


def replayed(evidence: Any, target: str) -> Ran:  # noqa: ANN401 - a record, or a whole report
    """Replay of a record on a target."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "evidence.json"
        file.write_text(json.dumps(evidence), encoding="utf-8")
        return sentinel("replay", str(file), target)


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    """Outcome by law, boundary and setting."""
    return {f"{v['law']} {v['boundary']} [{v['setting']}]": v["outcome"] for v in report["verdicts"]}


def digest(report: dict[str, Any]) -> str:
    """What was audited: the target with the first figures of its commit or digest."""
    about = next((f["evidence"]["target"] for f in report["findings"]), {"commit": "", "digest": ""})
    return f"{report['target']} ({str(about['commit'] or about['digest'])[:12]})"
