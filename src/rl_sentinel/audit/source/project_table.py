"""Read the table ``[tool.rl-sentinel]`` of pyproject.toml: functions, their claims, known findings."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pydantic

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import bound, nearest, shortened

Level = Literal["fault", "contested", "hazard"]

#: The table's name.
TABLE = "tool.rl-sentinel"


class FunctionTable(pydantic.BaseModel):
    """The entry of one function; the keys have the meaning of the arguments of ``rl_sentinel.check``."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    stage: str
    algorithm: str = pydantic.Field(default="", min_length=1)
    claims: dict[str, str | bool] = {}
    bind: dict[str, str | bool | int | float | dict[str, str]] = {}
    axes: dict[str, str] = {}
    numbers: dict[str, pydantic.FiniteFloat] = {}
    laws: list[str] = pydantic.Field(default=[], min_length=1)
    ignore: list[str] = []
    level: Level | None = None


class ProjectTable(pydantic.BaseModel):
    """The whole table; ``functions`` are named as targets: ``package.module:function`` or ``FILE.py:function``."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    functions: dict[str, FunctionTable]
    level: Level = "contested"
    known: str = ""
    ignore: list[str] = []
    seed: int = pydantic.Field(default=0, ge=0, lt=2**32)
    budget: int = pydantic.Field(default=16, ge=2, le=100_000)


@dataclass(frozen=True, slots=True)
class Project:
    """A project: its pyproject.toml, and the table."""

    file: Path
    table: ProjectTable

    def place(self, name: str = "") -> str:
        """The location of a function's table, or without a name of the whole table, for messages."""
        return f"{self.file}[{TABLE}{f'.functions.{name!r}' if name else ''}]"


def project_file(folder: Path) -> Path | None:
    """The nearest pyproject.toml with the table, in a folder or its parents."""
    return next((file for file in _candidates(folder) if _has_table(file)), None)


def _candidates(folder: Path) -> Iterator[Path]:
    """Every pyproject.toml of a folder and its parents, the nearest first."""
    files = (place / "pyproject.toml" for place in (folder, *folder.parents))
    return (file for file in files if file.exists())


def _has_table(file: Path) -> bool:
    """Whether a file has the table or, if the file cannot be parsed, the table's header."""
    # Without zero bytes, the header is readable in UTF-16 too: `read_project` then names the encoding.
    try:
        headed = file.is_file() and f"[{TABLE}".encode() in file.read_bytes().replace(b"\0", b"")
        return headed or _raw_table(file) is not None
    except (OSError, SentinelError):
        return False


def _raw_table(file: Path) -> Any:  # noqa: ANN401 - validated by pydantic
    """The table as it is written in the file; None if the file does not have the table.

    Raises:
        SentinelError: if the file cannot be read as TOML, or ``tool`` is not a table.
    """
    if file.is_dir():
        raise SentinelError(f"{file} is a folder, expected a file in TOML: rename the folder")
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SentinelError(f"{file} cannot be read ({error.strerror}): make it readable") from error
    except UnicodeDecodeError as error:
        raise SentinelError(
            f"{file} is not UTF-8 ({error}), expected TOML, which is UTF-8: convert the file"
        ) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SentinelError(f"{file} is malformed ({error}), expected TOML") from error
    tool = tables.get("tool", {})
    if not isinstance(tool, dict):
        raise SentinelError(f"{file}[tool] is {shortened(tool)}, expected a table, as in [{TABLE}]")
    return tool.get("rl-sentinel")


def read_project(folder: Path) -> Project:
    """The project of a folder.

    Raises:
        SentinelError: if no file has the table, or the table is wrong.
    """
    file = project_file(folder)
    if file is None:
        for other in _candidates(folder):
            _raw_table(other)  # raises the cause if a file cannot have the table
        raise SentinelError(
            f"no TARGET is given, and no pyproject.toml in {folder} or above has [{TABLE}]: name a target, or list "
            f'functions as in [{TABLE}.functions."mine:advantages"] (docs/project.md)'
        )
    raw_table = _raw_table(file)
    try:
        table = ProjectTable.model_validate({} if raw_table is None else raw_table)
    except pydantic.ValidationError as error:
        raise SentinelError(_message(file, error, raw_table)) from error
    if not table.functions:
        raise SentinelError(
            f"{file}[{TABLE}.functions] is empty, expected at least one function: {_MISSING['functions']}"
        )
    return Project(file, table)


def _message(file: Path, error: pydantic.ValidationError, raw_table: Any) -> str:  # noqa: ANN401 - not yet validated
    """The first error in one line; unknown keys come first, because they often explain a missing key."""
    errors = error.errors()
    first: Any = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    location = _written(first, raw_table)
    place = f"{file}[{'.'.join([TABLE, *map(_key, location)])}]"
    if first["type"] == "extra_forbidden":
        return f"{place} is unknown, {nearest(location[-1], list(_fields(location)))}"
    if first["type"] == "missing":
        return f"{place} is missing: {_MISSING.get(location[-1], 'add it')} (docs/project.md)"
    here = [e for e in errors if _written(e, raw_table) == location]
    return f"{place} is {shortened(first['input'])}, expected {' or '.join(dict.fromkeys(map(_expected, here)))}"


def _written(error: Any, raw_table: Any) -> list[str]:  # noqa: ANN401 - pydantic's, and not yet validated
    """The keys in the location of an error, without the union types that pydantic adds."""
    keys, value = list[str](), raw_table
    for part in error["loc"]:
        if (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int)):
            keys.append(str(part))
            value = value[part]
    return [*keys, str(error["loc"][-1])] if error["type"] == "missing" else keys


#: Required key -> how to write it.
_MISSING: Mapping[str, str] = {
    "stage": 'state what the function computes, as in stage = "advantage"',
    "functions": f'list functions, as in [{TABLE}.functions."mine:advantages"]',
}


def _key(part: str) -> str:
    return part if part.replace("_", "").replace("-", "").isalnum() else f'"{part}"'


def _fields(location: Sequence[str]) -> Sequence[str]:
    """The valid keys of the table in which an unknown key is."""
    return list((FunctionTable if location[0] == "functions" else ProjectTable).model_fields)


def _expected(error: Mapping[str, Any]) -> str:
    """Pydantic's expected type in TOML terms."""
    kinds = {"dict_type": "a table", "model_type": "a table", "string_type": "a string", "list_type": "a list"}
    kinds |= {"string_too_short": "a name", "too_short": "at least one entry"}
    kinds |= {"bool_type": "a boolean", "int_type": "a number", "float_type": "a number"}
    message = bound(str(error["msg"]).removeprefix("Input should be "))
    return kinds.get(str(error["type"]), message)
