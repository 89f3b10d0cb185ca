"""The targets of an audit command and their options, from the command line or pyproject.toml."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_sentinel.adapters.user_claims import EXAMPLES
from rl_sentinel.audit.law_codes import codes
from rl_sentinel.audit.sandbox.request import LEADING_CASES
from rl_sentinel.audit.source.project_table import FunctionTable, Project, read_project
from rl_sentinel.audit.source.target_spec import TargetSpec, parse_target
from rl_sentinel.cli.options import FunctionOptions, function_request, with_axes
from rl_sentinel.core.errors import SentinelError

#: Random cases per pair of law and boundary, for a user's function.
FUNCTION_BUDGET = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One target: the ``options`` of its request, and the lowest ``level`` that is shown."""

    target: TargetSpec
    options: Mapping[str, Any]
    level: str

    @property
    def algorithm(self) -> str:
        """The algorithm that the user states for a function; empty if the user states no algorithm."""
        claims = dict(claim.partition("=")[::2] for claim in self.options["claims"])
        return str(self.options["algorithm"] or claims.get("algorithm", ""))

    @property
    def unclaimed(self) -> str:
        """An algorithm to suggest if the user states no algorithm for a function; else empty."""
        if self.target.form != "function" or self.algorithm:
            return ""
        return EXAMPLES.get(self.options["stage"], "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All targets of a command, and the file of known findings that the project names."""

    planned: Sequence[Planned]
    known: Path | None = None


def plan_of_targets(
    targets: Sequence[TargetSpec], function: FunctionOptions, options: Mapping[str, Any], level: str
) -> Plan:
    """Make a plan from the command line: all targets have the same options, except a default budget.

    Raises:
        SentinelError: if an option does not fit the targets.
    """
    merged = {**options, **function_request(targets, function)}
    planned = [Planned(target=t, options=merged | {"budget": _budget(t, options)}, level=level) for t in targets]
    return Plan(planned=planned)


def _budget(target: TargetSpec, options: Mapping[str, Any]) -> int:
    """The number of random cases per pair, if it is stated.

    The default is :data:`FUNCTION_BUDGET` for a function, whose calls are short, and otherwise :data:`LEADING_CASES`:
    only the leading cases are tried.
    """
    return options["budget"] or (FUNCTION_BUDGET if target.form == "function" else LEADING_CASES)


def plan_of_project(function: FunctionOptions, options: Mapping[str, Any], level: str | None) -> Plan:
    """Make a plan from pyproject.toml in this folder or above; options of the command line override it.

    Args:
        function: options about one function; must be empty.
        options: options of all requests; None for an option that was not given.
        level: the level from the command line.

    Raises:
        SentinelError: for the first wrong entry, in one line.
    """
    project = read_project(Path.cwd())
    if option := function.option():
        raise SentinelError(f"{option} needs a TARGET: name a target, or set the option in {project.place()}")
    table = project.table
    request_fields = {name: value for name, value in options.items() if value is not None}
    request_fields = {"seed": table.seed, "budget": table.budget, **request_fields}
    ignored = (*request_fields["ignore"], *_codes(project, "ignore", table.ignore))
    planned = [
        Planned(
            target=_function(project, name),
            options={**request_fields, **_of_function(project, name, entry, request_fields, ignored)},
            level=level or entry.level or table.level,
        )
        for name, entry in table.functions.items()
    ]
    return Plan(planned=planned, known=project.file.parent / table.known if table.known else None)


def _function(project: Project, name: str) -> TargetSpec:
    try:
        target = parse_target(name)
    except SentinelError:
        target = None
    if target is None or target.form != "function":
        raise SentinelError(
            f"{project.place(name)} is not the name of a function, expected package.module:function or FILE.py:function"
        )
    return target


def _of_function(
    project: Project, name: str, table: FunctionTable, request_fields: Mapping[str, Any], ignored: tuple[str, ...]
) -> dict[str, Any]:
    """The options of one function: its claims, bindings and laws."""
    yes_no = {True: "yes", False: "no"}
    claims = [f"{key}={yes_no[v] if isinstance(v, bool) else v}" for key, v in table.claims.items()]
    try:
        function = FunctionOptions(
            stage=table.stage,
            algorithm=table.algorithm,
            claims=tuple(claims),
            bind=with_axes(table.bind, table.axes),
            numbers=table.numbers,
        )
        fields = function_request([_function(project, name)], function)
    except SentinelError as error:
        raise SentinelError(f"{project.place(name)}: {str(error).replace('--', '')}") from error
    return {
        **fields,
        "laws": request_fields["laws"] or _codes(project, f"functions.{name!r}.laws", table.laws),
        "ignore": (*ignored, *_codes(project, f"functions.{name!r}.ignore", table.ignore)),
    }


def _codes(project: Project, key: str, laws: Sequence[str]) -> tuple[str, ...]:
    try:
        return codes(laws)
    except SentinelError as error:
        raise SentinelError(f"{project.place()} {key}: {error}") from error
