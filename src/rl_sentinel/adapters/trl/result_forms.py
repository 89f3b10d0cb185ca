"""Read logged metrics as TRL's ``log`` does: as the mean of the appended values."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.core.codec import Sizes


@dataclass(frozen=True, slots=True)
class Logged(Number):
    """The mean of a list of logged values, one per micro-batch; NaN if the list is empty."""

    @override
    def read(self, value: Any, sizes: Sizes) -> Tensor:
        return torch.tensor(sum(value) / len(value) if value else torch.nan)

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """The mean, as a Python expression."""
        return f"torch.tensor({expression}).mean()"
