"""The library of this process as a target, and one call of one of its boundaries."""

from pathlib import Path

from torch import Tensor

import rl_sentinel
from rl_sentinel.adapters.kit.execution import execute, inputs_of
from rl_sentinel.adapters.library import FRAMEWORK
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case

TARGET = Target(root=Path(rl_sentinel.__file__).parents[1])


def outputs_of(path: str, setting: str, batch: Batch) -> dict[str, Tensor]:
    """The outputs of the one boundary whose path ends with ``path`` and that has the setting."""
    bound = (b for b in FRAMEWORK.boundaries(TARGET) if isinstance(b, Boundary))
    (one,) = [b for b in bound if b.path.endswith(path) and setting in b.settings]
    return execute(TARGET, one, inputs_of(one, Case(batch, setting=setting))).values
