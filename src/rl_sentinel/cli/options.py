"""Options that several commands share."""

from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from rl_sentinel.adapters.user_function import STAGES, checked
from rl_sentinel.audit.source.target_spec import Named
from rl_sentinel.core.errors import SentinelError

LevelOption = Annotated[
    Literal["fault", "contested", "hazard"], typer.Option(help="Show findings of this level and worse.")
]
StageOption = Annotated[
    str, typer.Option(metavar="STAGE", help=f"What a function of your own computes: {', '.join(STAGES)}.")
]
BoundaryOption = Annotated[
    list[str] | None, typer.Option(metavar="GLOB", help="Only boundaries whose path matches; may be given again.")
]
ClaimOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="What a function of your own says of itself (docs/claims.md); may be given again."
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random cases.")]


def described(targets: Sequence[Named], stage: str, claim: Sequence[str] | None) -> tuple[str, ...]:
    """The claims, if stage and claims fit the targets: only a user's function has them.

    Raises:
        SentinelError: one line that names the option.
    """
    claims = tuple(claim or ())
    if any(t.form == "function" for t in targets):
        checked(stage, claims)
    elif stage or claims:
        option = "--claim" if claims else "--stage"
        raise SentinelError(
            f"{option} applies to a function of yours, as in pkg.module:function, not to {targets[0].text}"
        )
    return claims
