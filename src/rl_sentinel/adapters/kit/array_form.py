"""A layout as a numpy array, for functions that are annotated so."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Form, Inputs, Sizes
from rl_sentinel.core.errors import NotApplicable
from rl_sentinel.core.layout import Axis


@dataclass(frozen=True, slots=True)
class Array(Form):
    """Another layout, as a numpy array without a gradient."""

    inner: Form

    @property
    def axes(self) -> frozenset[Axis]:
        """As in the other layout."""
        return self.inner.axes

    @property
    def needs(self) -> frozenset[str]:
        """As in the other layout."""
        return self.inner.needs

    def lay_out(self, column: Tensor, inputs: Inputs) -> np.ndarray:
        """The column as an array."""
        if column.requires_grad:
            raise NotApplicable("a numpy array has no gradient")
        if column.dtype == torch.bfloat16:
            raise NotApplicable("numpy has no bfloat16")
        laid_out: Tensor = self.inner.lay_out(column, inputs)
        return laid_out.numpy()

    def read(self, value: np.ndarray, sizes: Sizes) -> Tensor:
        """The column of an array."""
        return self.inner.read(torch.as_tensor(value), sizes)

    def sizes(self, value: np.ndarray) -> Sizes:
        """The sizes that the layout determines."""
        return self.inner.sizes(torch.as_tensor(value))

    def canonical(self, column: Tensor, batch: Batch) -> Tensor:
        """As the layout."""
        return self.inner.canonical(column, batch)

    def source(self, expression: str, sizes: Sizes) -> str:
        """The array as a tensor, in the layout."""
        return self.inner.source(f"torch.as_tensor({expression})", sizes)
