"""``rl-sentinel replay``: replay stored findings on the same target or on another target."""

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
from rl_sentinel.audit.source.interpreter import check_interpreter
from rl_sentinel.audit.source.target_spec import parse_target
from rl_sentinel.core.errors import SentinelError

#: Answer -> exit status; any other answer is inconclusive.
_STATUS = {"fixed": 0, "reproduced": 1}

#: Exit status that makes ``git bisect run`` skip a revision, and exit status that makes it stop.
_SKIP, _STOP = 125, 128


@dataclass(frozen=True, slots=True)
class _Target:
    """The target of a replay, with stage and claims for a user's function.

    ``bound`` has the function's bindings and numbers, or the recipe, as JSON.
    """

    spec: str
    stage: str = ""
    claims: tuple[str, ...] = ()
    bound: str = "{}"


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    target: Annotated[str, typer.Argument(metavar="[TARGET]")] = "",
    *,
    python: Annotated[str, typer.Option(help="Python interpreter of the environment to replay in.")] = sys.executable,
    bisect: Annotated[
        bool,
        typer.Option("--bisect", help="For `git bisect run`: exit 125 if inconclusive, 128 if FILE is bad."),
    ] = False,
) -> None:
    """Replay FILE: exit 1 reproduced, 0 fixed, 2 inconclusive."""
    with _ending(_STOP if bisect else None):
        groups = _by_target(file, target)
        check_interpreter(python)
    with _ending(_SKIP if bisect else None):
        statuses = _print_answers(groups, python)
    if bisect:
        raise typer.Exit(1 if 1 in statuses else max(statuses) and _SKIP)
    raise typer.Exit(max(statuses))


@contextmanager
def _ending(status: int | None) -> Iterator[None]:
    """On an error that the user can fix, end the command with this status, unless it is None."""
    try:
        yield
    except SentinelError as error:
        error.status = error.status if status is None else status
        raise


def _by_target(file: Path, target: str) -> dict[_Target, list[dict[str, Any]]]:
    """The records of a file, grouped by the target of their replay."""
    groups: dict[_Target, list[dict[str, Any]]] = {}
    for record in stored(file):
        spec = target or str(record["target"]["spec"])
        framework = parse_target(spec).framework.name
        recorded = str(record["target"].get("framework", framework))
        if recorded != framework:
            one, other = (name.replace("own", "a function") for name in (recorded, framework))
            fix = f"replay it on {record['target']['spec'] if recorded == 'own' else recorded}"
            raise SentinelError(f"{file} has a finding of {one}, but the target {spec} is {other}: {fix}")
        groups.setdefault(_target_of(record, spec), []).append(record)
    return groups


def _print_answers(groups: Mapping[_Target, Sequence[Mapping[str, Any]]], python: str) -> list[int]:
    """Replay all records, print a line for each, and return their statuses."""
    statuses = list[int]()
    for target, records in groups.items():
        answers, digest = _replayed(records, target, python)
        for number, record in enumerate(records):
            answer = answers.get(number, {"status": "not-reproducible", "reason": "the worker returned no result"})
            reasons = (" ".join(str(answer.get("reason", "")).split()), _code_difference(record, target, digest))
            reason = "; ".join(filter(None, reasons))
            line = f"{answer['status']}: {record['signature']}{f' ({reason})' if reason else ''}"
            Console(highlight=False).print(line, markup=False, soft_wrap=True)
            statuses.append(_STATUS.get(str(answer["status"]), 2))
    return statuses


def _code_difference(record: Mapping[str, Any], target: _Target, digest: str) -> str:
    """A note if the record's own target has changed since the audit; empty for another target or an unknown digest."""
    audited = str(record["target"].get("digest", ""))
    if target.spec != record["target"]["spec"] or not audited or not digest or audited == digest:
        return ""
    return f"its code differs from the audited code: sha256 {digest[:12]}, expected {audited[:12]}"


def _target_of(record: Mapping[str, Any], spec: str) -> _Target:
    """The target on which a record is replayed; only a user's function has a stage and claims."""
    if parse_target(spec).form != "function":
        return _Target(spec, bound=_bound(record))
    claims = {k: v.get("value") for k, v in record.get("claims", {}).items()}
    stage = str(record["target"].get("stage", record["stage"]))
    return _Target(spec, stage, tuple(f"{key}={value}" for key, value in claims.items()), _bound(record))


def _bound(record: Mapping[str, Any]) -> str:
    """The bindings and numbers of a user's function, or the recipe, as JSON."""
    return str(record["target"].get("bound") or "{}")


def _replayed(records: Sequence[Any], target: _Target, python: str) -> tuple[dict[int, dict[str, Any]], str]:
    """The result of each record by its number, and the digest of the code."""
    options = {"records": tuple(records), "stage": target.stage, "claims": target.claims, **json.loads(target.bound)}
    job, _ = request(parse_target(target.spec), "replay", python=python, **options)
    with closing(events(job, python)) as stream:
        answers = {int(event["number"]): event for event in stream if event["event"] == "replay"}
    return answers, str(job.target["digest"])
