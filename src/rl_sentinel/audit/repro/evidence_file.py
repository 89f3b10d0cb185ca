"""Read and validate evidence files for a replay."""

import json
from pathlib import Path
from typing import Any

import pydantic

from rl_sentinel.audit.engine.evidence import KIND, REPLAYABLE
from rl_sentinel.audit.engine.finding_identity import contradiction
from rl_sentinel.audit.engine.worker import laws
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.law import Law
from rl_sentinel.core.phrasing import expected, shortened
from rl_sentinel.core.storage import case_from_json
from rl_sentinel.core.stored_columns import check_whole


class _Record(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", strict=True)

    kind: str
    schema_: int = pydantic.Field(alias="schema")
    signature: str
    law: str
    boundary: str
    stage: str
    setting: str
    claims: dict[str, dict[str, str]] = {}
    target: dict[str, str]
    constructed_scenario: dict[str, Any]


def stored(file: Path) -> list[dict[str, Any]]:
    """The evidence records of a file: a single record, an audit's JSON report, or a list of reports.

    Raises:
        SentinelError: if the file cannot be read, is damaged, has no finding, or has another schema.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SentinelError(
            f"evidence {file} cannot be read ({error.strerror}): name a file that audit --json wrote"
        ) from error
    except RecursionError as error:
        raise SentinelError(f"evidence {file} is nested too deeply, expected JSON that an audit wrote") from error
    except ValueError as error:
        raise SentinelError(f"evidence {file} is damaged ({error}), expected JSON that an audit wrote") from error
    is_report = isinstance(data, list) or (isinstance(data, dict) and "findings" in data)
    records = _report_records(data if isinstance(data, list) else [data], file) if is_report else [("", data)]
    if not records:
        raise SentinelError(f"evidence {file} has no finding, expected a report with findings to replay")
    return [_validated(record, file, where) for where, record in records]


def _report_records(reports: list[Any], file: Path) -> list[tuple[str, Any]]:
    """Path and value of each record in a list of reports."""
    records: list[tuple[str, Any]] = []
    for n, report in enumerate(reports):
        prefix = f"{n}." if len(reports) > 1 else ""
        findings = report.get("findings") if isinstance(report, dict) else None
        if not isinstance(findings, list):
            found = "is not a list" if findings is not None else "is missing"
            fix = "expected a report of an audit: name a file that audit --json wrote"
            raise SentinelError(f"evidence {file}[{prefix}findings] {found}, {fix}")
        for m, finding in enumerate(findings):
            record = finding.get("evidence") if isinstance(finding, dict) else None
            records.append((f"{prefix}findings.{m}.evidence.", record))
    return records


def _check_draw(law: Law, case: Case) -> None:
    """Validate that the record's draw has the names that the law draws for this case."""
    varied = law.vary(case, int(case.draw.get("variant") or 0))
    if varied is not None and set(case.draw) != set(varied.draw):
        names = ", ".join(sorted(varied.draw)) or "nothing"
        keys = ", ".join(sorted(case.draw)) or "nothing"
        raise ValueError(f"draw has {keys}, expected {names} of {law.code}: the file was edited, so audit again")


def _validated(record: Any, file: Path, prefix: str) -> dict[str, Any]:  # noqa: ANN401 - JSON
    if not isinstance(record, dict):
        where = prefix.rstrip(".") or "top"
        raise SentinelError(f"evidence {file}[{where}] is not an object, expected a finding of an audit: audit again")
    try:
        parsed = _Record.model_validate(record)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = prefix + ".".join(str(p) for p in first["loc"])
        wrong = f"is {shortened(first['input'])}{expected(first['msg'])}"
        wrong = "is missing, expected a finding of an audit" if first["type"] == "missing" else wrong
        raise SentinelError(f"evidence {file}[{where}] {wrong}: audit again") from error
    if parsed.kind != KIND:
        raise SentinelError(
            f"evidence {file} is {parsed.kind!r}, expected {KIND!r}: name a file that audit --json wrote"
        )
    if parsed.schema_ not in REPLAYABLE:
        schemas = " or ".join(map(str, sorted(REPLAYABLE)))
        raise SentinelError(
            f"evidence {file} has schema {parsed.schema_}, expected {schemas}: another version of rl-sentinel wrote "
            "the file, so audit again"
        )
    if "spec" not in parsed.target:
        raise SentinelError(
            f"evidence {file}[{prefix}target] lacks 'spec', expected a finding of an audit: audit again"
        )
    law = laws().get(parsed.law)
    if law is None:
        raise SentinelError(f"evidence {file}[{prefix}law] is {parsed.law!r}, expected the code of a law: audit again")
    try:
        case = case_from_json(parsed.constructed_scenario)
        check_whole("draw[variant]", case.draw.get("variant", 0), law.variants - 1)
        _check_draw(law, case)
    except (SentinelError, ValueError) as error:
        raise SentinelError(f"evidence {file}[{prefix}constructed_scenario]: {error}") from error
    difference = contradiction(record, law, case)
    if difference:
        raise SentinelError(
            f"evidence {file}{difference.replace('[', f'[{prefix}', 1)}: the file was edited, so audit again"
        )
    return dict(record)
