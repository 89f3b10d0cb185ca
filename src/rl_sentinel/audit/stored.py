"""Evidence files as they come back: checked before anything is done with them."""

import json
from pathlib import Path
from typing import Any

import pydantic

from rl_sentinel.audit.worker.evidence import KIND, SCHEMA
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.storage import case_from_json


class _Record(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", strict=True)

    kind: str
    schema_: int = pydantic.Field(alias="schema")
    signature: str
    law: str
    boundary: str
    stage: str
    setting: str
    target: dict[str, str]
    constructed_scenario: dict[str, Any]


def stored(file: Path) -> list[dict[str, Any]]:
    """The evidence records of a file: one, or all of an audit's JSON report.

    Raises:
        SentinelError: if it cannot be read, is truncated, or is no evidence of this schema.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SentinelError(f"evidence {file} cannot be read ({error.strerror})") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise SentinelError(f"evidence {file} is damaged ({error}), expected JSON that an audit wrote") from error
    many = isinstance(data, dict) and "findings" in data
    records = [f["evidence"] for f in data["findings"]] if many else [data]
    return [_checked(r, file) for r in records]


def _checked(record: Any, file: Path) -> dict[str, Any]:  # noqa: ANN401 - JSON
    try:
        known = _Record.model_validate(record)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(p) for p in first["loc"]) or "top"
        raise SentinelError(f"evidence {file}[{where}]: {first['msg']}, expected a finding of an audit") from error
    if known.kind != KIND or known.schema_ != SCHEMA:
        raise SentinelError(
            f"evidence {file} is {known.kind!r} of schema {known.schema_}, expected {KIND!r} of schema {SCHEMA}"
        )
    if "spec" not in known.target:
        raise SentinelError(f"evidence {file}[target] lacks 'spec', expected a finding of an audit")
    case_from_json(known.constructed_scenario)
    return dict(record)
