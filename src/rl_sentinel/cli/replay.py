"""``rl-sentinel replay``: stored findings on the same target, or on another."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rl_sentinel.audit.repro.evidence_file import stored
from rl_sentinel.audit.sandbox.worker_process import events, request
from rl_sentinel.audit.source.interpreter import checked
from rl_sentinel.audit.source.target_spec import named
from rl_sentinel.core.errors import SentinelError

#: Exit status of each answer; any other answer is inconclusive.
_STATUS = {"fixed": 0, "reproduced": 1}

#: Exit statuses that make ``git bisect run`` skip a revision, and stop.
_SKIP, _STOP = 125, 128


@dataclass(frozen=True, slots=True)
class _On:
    """The target of a replay, with stage and claims for a user's function."""

    spec: str
    stage: str = ""
    claims: tuple[str, ...] = ()
    bound: str = "{}"


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    target: Annotated[str, typer.Argument(metavar="[TARGET]")] = "",
    *,
    python: Annotated[str, typer.Option(help="Interpreter of the environment to replay in.")] = sys.executable,
    bisect: Annotated[
        bool,
        typer.Option("--bisect", help="For `git bisect run`: exit 125 if inconclusive, 128 if FILE is bad."),
    ] = False,
) -> None:
    """Replay FILE: exit 1 reproduced, 0 fixed, 2 inconclusive."""
    with _ending(_STOP if bisect else None):
        groups = _grouped(file, target)
        checked(python)
    with _ending(_SKIP if bisect else None):
        statuses = _answered(groups, python)
    if bisect:
        raise typer.Exit(1 if 1 in statuses else max(statuses) and _SKIP)
    raise typer.Exit(max(statuses))


@contextmanager
def _ending(status: int | None) -> Iterator[None]:
    """End the command with this status, if given, on an error that the user can fix."""
    try:
        yield
    except SentinelError as error:
        error.status = error.status if status is None else status
        raise


def _grouped(file: Path, target: str) -> dict[_On, list[dict[str, Any]]]:
    """The records of a file, grouped by the target of their replay."""
    groups: dict[_On, list[dict[str, Any]]] = {}
    for record in stored(file):
        spec = target or str(record["target"]["spec"])
        wanted = named(spec).framework.name
        of = str(record["target"].get("framework", wanted))
        if of != wanted:
            message = f"{file} has a finding of {of}, but the target {spec} is {wanted}: replay it on {of}"
            raise SentinelError(message)
        groups.setdefault(_on(record, spec), []).append(record)
    return groups


def _answered(groups: Mapping[_On, Sequence[Mapping[str, Any]]], python: str) -> list[int]:
    """Replay all records, print a line for each, and return their statuses."""
    statuses = list[int]()
    for on, records in groups.items():
        answers, digest = _replayed(records, on, python)
        for number, record in enumerate(records):
            found = answers.get(number, {"status": "not-reproducible", "reason": "the worker gave no answer"})
            why = "; ".join(filter(None, (" ".join(str(found.get("reason", "")).split()), _other(record, on, digest))))
            line = f"{found['status']}: {record['signature']}{f' ({why})' if why else ''}"
            Console(highlight=False).print(line, markup=False, soft_wrap=True)
            statuses.append(_STATUS.get(str(found["status"]), 2))
    return statuses


def _other(record: Mapping[str, Any], on: _On, digest: str) -> str:
    """A note if the code differs from the audited code; empty if it is equal or a digest is unknown."""
    audited = str(record["target"].get("digest", ""))
    if on.spec != record["target"]["spec"] or not audited or not digest or audited == digest:
        return ""
    return f"its code differs from the audited code: sha256 {digest[:12]}, expected {audited[:12]}"


def _on(record: Mapping[str, Any], spec: str) -> _On:
    """The target on which a record is replayed; only a user's function has stage and claims."""
    if named(spec).form != "function":
        return _On(spec, bound=_bound(record))
    claims = {k: v.get("value") for k, v in record.get("claims", {}).items()}
    stage = str(record["target"].get("stage", record["stage"]))
    return _On(spec, stage, tuple(f"{key}={value}" for key, value in claims.items()), _bound(record))


def _bound(record: Mapping[str, Any]) -> str:
    """How the parameters of a user's function were bound, and the numbers of its formula; or a recipe; as JSON."""
    return str(record["target"].get("bound") or "{}")


def _replayed(records: Sequence[Mapping[str, Any]], on: _On, python: str) -> tuple[dict[int, dict[str, Any]], str]:
    """The answer to each record by its number, and the digest of the code."""
    more = {"records": tuple(records), "stage": on.stage, "claims": on.claims, **json.loads(on.bound)}
    job, _ = request(named(on.spec), "replay", python=python, **more)
    with closing(events(job, python)) as stream:
        answers = {int(event["number"]): event for event in stream if event["event"] == "replay"}
    return answers, str(job.target["digest"])
