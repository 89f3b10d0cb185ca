"""``rl-sentinel replay``: one stored finding on the same target, or on another."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rl_sentinel.audit.driver import events, request
from rl_sentinel.audit.stored import stored
from rl_sentinel.audit.target import named


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    target: Annotated[str, typer.Argument(metavar="[TARGET]")] = "",
    *,
    python: Annotated[str, typer.Option(help="Interpreter of the environment to replay in.")] = sys.executable,
) -> None:
    """Replay FILE: exit 1 reproduced, 0 fixed, 2 where it cannot be told."""
    worst = 0
    for record in stored(file):
        found = _replayed(record, named(target or str(record["target"]["spec"])), python)
        status = found["status"]
        why = f" ({found['reason']})" if found.get("reason") else ""
        Console(highlight=False).print(f"{status}: {record['signature']}{why}", markup=False, soft_wrap=True)
        worst = max(worst, {"fixed": 0, "reproduced": 1}.get(str(status), 2))
    raise typer.Exit(worst)


def _replayed(record: dict[str, Any], target: Any, python: str) -> dict[str, Any]:  # noqa: ANN401 - a Named
    job, _ = request(
        target, "replay", python=python, evidence=json.loads(json.dumps(record)), stage=str(record["stage"])
    )
    for event in events(job, python):
        if event["event"] == "replay":
            return event
    return {"status": "not-reproducible", "reason": "the worker gave no answer"}
