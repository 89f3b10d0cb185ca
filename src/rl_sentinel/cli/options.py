"""Options that several commands share."""

from typing import Annotated, Literal

import typer

LevelOption = Annotated[
    Literal["fault", "contested", "hazard"], typer.Option(help="Show findings of this level and worse.")
]
SeedOption = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random cases.")]
