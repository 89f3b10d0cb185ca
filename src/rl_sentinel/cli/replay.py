"""``rl-sentinel replay``: stored findings on the same target, or on another."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rl_sentinel.audit.driver import events, request
from rl_sentinel.audit.stored import stored
from rl_sentinel.audit.target import Named, named

#: Exit status of each answer; whatever else is said cannot be told.
_STATUS = {"fixed": 0, "reproduced": 1}


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    target: Annotated[str, typer.Argument(metavar="[TARGET]")] = "",
    *,
    python: Annotated[str, typer.Option(help="Interpreter of the environment to replay in.")] = sys.executable,
) -> None:
    """Replay FILE: exit 1 reproduced, 0 fixed, 2 where it cannot be told."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in stored(file):
        spec = target or str(record["target"]["spec"])
        stage = str(record["stage"]) if named(spec).form == "function" else ""
        groups.setdefault((spec, stage), []).append(record)
    worst = 0
    for (spec, stage), records in groups.items():
        answers = _replayed(records, named(spec), stage, python)
        for number, record in enumerate(records):
            found = answers.get(number, {"status": "not-reproducible", "reason": "the worker gave no answer"})
            why = f" ({found['reason']})" if found.get("reason") else ""
            line = f"{found['status']}: {record['signature']}{why}"
            Console(highlight=False).print(line, markup=False, soft_wrap=True)
            worst = max(worst, _STATUS.get(str(found["status"]), 2))
    raise typer.Exit(worst)


def _replayed(
    records: Sequence[Mapping[str, Any]], target: Named, stage: str, python: str
) -> dict[int, dict[str, Any]]:
    job, _ = request(target, "replay", python=python, records=tuple(records), stage=stage)
    with closing(events(job, python)) as stream:
        return {int(event["number"]): event for event in stream if event["event"] == "replay"}
