"""Options that several commands share, and the parsed options about a user's function."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import typer

from rl_sentinel.adapters.kit.bind_text import WRITTEN_AXES
from rl_sentinel.adapters.kit.numbers import STATED_NAMES
from rl_sentinel.adapters.user_boundary import STAGES
from rl_sentinel.adapters.user_function import stage_claims
from rl_sentinel.audit.sandbox.request import MOST_CASES
from rl_sentinel.audit.source.target_spec import TargetSpec
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import nearest, shortened

LevelOption = Annotated[
    Literal["fault", "contested", "hazard"], typer.Option(help="Show findings of this level and worse.")
]
StageOption = Annotated[str, typer.Option(metavar="STAGE", help=f"What your function computes: {', '.join(STAGES)}.")]
BoundaryOption = Annotated[
    list[str] | None, typer.Option(metavar="GLOB", help="Only boundaries whose path matches; may be repeated.")
]
ClaimOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A claim about your function (docs/claims.md); may be repeated."),
]

AlgorithmOption = Annotated[
    str, typer.Option(metavar="NAME", help="The algorithm of your function; implies its usual claims.")
]
BindOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=WHAT",
        help="The value of a parameter of your function: a column, COLUMN[AXES] or a number; may be repeated.",
    ),
]
AxesOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=AXES", help=f"The axes of a parameter: {', '.join(WRITTEN_AXES)}; may be repeated."),
]
NumberOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=NUMBER", help="A number of your function's formula that is not a parameter; may be repeated."
    ),
]
BudgetOption = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=MOST_CASES,
        help="Check all small cases and this many random ones per pair of law and boundary. By default, a framework is "
        "checked with a few selected cases, and a function with all small cases and 16 random ones.",
        show_default=False,
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random cases.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionOptions:
    """The options about a user's function, as fields of an audit request; all are empty for a framework."""

    stage: str = ""
    algorithm: str = ""
    claims: tuple[str, ...] = ()
    bind: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def parsed(  # noqa: PLR0913 - the options of the command
        cls,
        *,
        stage: str = "",
        algorithm: str = "",
        claim: Sequence[str] | None = None,
        bind: Sequence[str] | None = None,
        axes: Sequence[str] | None = None,
        number: Sequence[str] | None = None,
    ) -> "FunctionOptions":
        """Parse the options.

        Raises:
            SentinelError: one line on an option that is not ``NAME=VALUE``, is repeated or has a wrong value.
        """
        bound = {name: bound_value(text) for name, text in _pairs("--bind", bind, "adv=advantage")}
        return cls(
            stage=stage,
            algorithm=algorithm,
            claims=tuple(claim or ()),
            bind=with_axes(bound, dict(_pairs("--axes", axes, "advantages=B"))),
            numbers={name: _number(name, text) for name, text in _pairs("--number", number, "clip_low=0.2")},
        )

    def request(self) -> dict[str, Any]:
        """The fields of a request."""
        return asdict(self)

    def option(self) -> str:
        """The first of these options that is set; empty if no option is set."""
        given = {"--claim": self.claims, "--algorithm": self.algorithm, "--bind": self.bind, "--number": self.numbers}
        return next((name for name, value in {**given, "--stage": self.stage}.items() if value), "")


def function_request(targets: Sequence[TargetSpec], options: FunctionOptions) -> dict[str, Any]:
    """The fields of an audit request that describe a user's function; for other targets, the options must be empty.

    Raises:
        SentinelError: one line that names the option.
    """
    if any(t.form == "function" for t in targets):
        stage_claims(options.stage, options.claims, options.algorithm)
        if unknown := [name for name in options.numbers if name not in STATED_NAMES]:
            fix = nearest(unknown[0], sorted(STATED_NAMES))
            raise SentinelError(f"--number names {unknown[0]}, which no formula reads: {fix}")
    elif option := options.option():
        raise SentinelError(f"{option} applies to a function, as in pkg.module:function, not to {targets[0].text}")
    return options.request()


def with_axes(bind: Mapping[str, Any], axes: Mapping[str, str]) -> dict[str, Any]:
    """Append the stated axes of each parameter to the column that the parameter is bound to.

    Raises:
        SentinelError: if a parameter is not bound to a column, or its axes are stated twice.

    Example:
        >>> from rl_sentinel.cli.options import with_axes
        >>> with_axes({"adv": "advantage"}, {"adv": "B", "rewards": "B"})
        {'adv': 'advantage[B]', 'rewards': '[B]'}
    """
    columns = dict(bind)
    for name, letters in axes.items():
        column = bind.get(name, "")
        if not isinstance(column, str) or "[" in column:
            raise SentinelError(
                f"axes[{name}] is {letters!r}, and {name} is bound to {shortened(column)}: state one of them"
            )
        name_of_column, _, dtype = column.partition(" ")
        columns[name] = f"{name_of_column}[{letters}] {dtype}".rstrip()
    return columns


def bound_value(text: str) -> Any:  # noqa: ANN401 - a column, a number or a table
    """Parse the value of a binding: JSON, such as a number, or else the name of a column."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _pairs(option: str, texts: Sequence[str] | None, example: str) -> list[tuple[str, str]]:
    pairs = [(name.strip(), equals, value.strip()) for name, equals, value in (t.partition("=") for t in texts or ())]
    for text, (name, equals, value) in zip(texts or (), pairs, strict=True):
        if not (name and equals and value):
            raise SentinelError(f"{option} is {text!r}, expected NAME=VALUE, as in {option} {example}")
        if [key for key, _, _ in pairs].count(name) > 1:
            raise SentinelError(f"{option} names {name} twice, expected each name once: remove one of the options")
    return [(name, value) for name, _, value in pairs]


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SentinelError(f"--number {name} is {text!r}, expected a finite number, as in {name}=0.2")
    return value
