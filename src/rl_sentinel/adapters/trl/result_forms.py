"""Read logged metrics as TRL's ``log`` does: as the mean of the appended values."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.core.codec import Sizes


@dataclass(frozen=True, slots=True)
class Logged(Number):
    """The mean of a list of logged values, one per micro-batch; NaN if the list is empty."""

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401, ARG002 - a list of numbers
        """The mean, as a scalar."""
        return torch.tensor(sum(value) / len(value) if value else torch.nan)

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """The mean, as a Python expression."""
        return f"torch.tensor({expression}).mean()"
