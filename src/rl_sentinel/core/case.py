"""A case: the only thing that is searched, shrunk, stored and replayed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rl_sentinel.core.batch import Batch

Scalar = bool | int | float | str | None

#: Neutral knob names to plain values; JSON as it stands.
Settings = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A batch, the settings it is computed under, and what the law draws for itself."""

    batch: Batch
    setting: str = "default"
    override: Settings = field(default_factory=dict)
    draw: Settings = field(default_factory=dict)
    seed: int = 0


def with_batch(case: Case, batch: Batch) -> Case:
    """The same case on another batch."""
    return replace(case, batch=batch)


def with_draw(case: Case, **draw: Scalar) -> Case:
    """The same case with the law's own numbers set."""
    return replace(case, draw=dict(draw))
