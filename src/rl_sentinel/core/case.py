"""``Case``: the input of one check, which is searched for, shrunk, stored and replayed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.layout import Layout

Scalar = bool | int | float | str | None

#: Name of a setting, the same in all frameworks -> its value, which JSON can hold.
Settings = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A batch and its layout, the settings of the call, and the numbers that the law draws.

    ``setting`` is the name of one of the boundary's configurations, ``override`` replaces some values of that
    configuration, and ``seed`` seeds the random generators before the call.
    """

    batch: Batch
    setting: str = "default"
    override: Settings = field(default_factory=dict)
    draw: Settings = field(default_factory=dict)
    seed: int = 0
    layout: Layout = field(default_factory=Layout)


def number_of(settings: Settings, name: str) -> float:
    """A setting as a number; 0 for None and False.

    Raises:
        KeyError: if the setting is missing.

    Example:
        >>> from rl_sentinel.core.case import number_of
        >>> number_of({"clip_low": 0.2, "ceiling": None}, "clip_low"), number_of({"ceiling": None}, "ceiling")
        (0.2, 0.0)
    """
    return float(settings[name] or 0)


def with_batch(case: Case, batch: Batch) -> Case:
    """A copy of the case with another batch."""
    return replace(case, batch=batch)


def with_draw(case: Case, **draw: Scalar) -> Case:
    """A copy of the case in which ``draw`` replaces the numbers that the law draws."""
    return replace(case, draw=dict(draw))


def with_layout(case: Case, **fields: Any) -> Case:  # noqa: ANN401 - fields of Layout
    """A copy of the case with fields of the layout changed."""
    return replace(case, layout=replace(case.layout, **fields))
