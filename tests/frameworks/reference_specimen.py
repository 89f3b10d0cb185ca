"""The library of this process as a target, and one of its boundaries asked under a setting."""

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

import rl_sentinel
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.frameworks.target import Target

TARGET = Target(root=Path(rl_sentinel.__file__).parents[1])


def asked(boundaries: Iterable[Boundary], path: str, setting: str, batch: Batch) -> dict[str, Tensor]:
    """What the one boundary of these says whose path ends so and that has the setting."""
    (found,) = [b for b in boundaries if b.path.endswith(path) and setting in b.settings]
    return dict(found.call(batch, found.settings[setting]))
