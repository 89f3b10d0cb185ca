"""A case: the only thing that is searched, shrunk, stored and replayed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.layout import Layout

Scalar = bool | int | float | str | None

#: Neutral knob names to plain values; JSON as it stands.
Settings = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A batch and its layout, the settings it is computed under, and what the law draws for itself."""

    batch: Batch
    setting: str = "default"
    override: Settings = field(default_factory=dict)
    draw: Settings = field(default_factory=dict)
    seed: int = 0
    layout: Layout = field(default_factory=Layout)


def with_batch(case: Case, batch: Batch) -> Case:
    """The same case on another batch."""
    return replace(case, batch=batch)


def with_draw(case: Case, **draw: Scalar) -> Case:
    """The same case with the law's own numbers set."""
    return replace(case, draw=dict(draw))


def with_layout(case: Case, **fields: Any) -> Case:  # noqa: ANN401 - fields of Layout
    """The same case laid out in another way."""
    return replace(case, layout=replace(case.layout, **fields))
