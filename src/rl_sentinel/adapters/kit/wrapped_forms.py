"""Layouts that wrap another layout: with time first, as a numpy array, or for responses of one prompt."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Form, Inputs, Sizes
from rl_sentinel.core.errors import NotApplicable
from rl_sentinel.core.layout import Axis


@dataclass(frozen=True, slots=True)
class _Around(Form):
    """The base class of layouts that wrap another layout, ``inner``."""

    inner: Form

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout fields of the inner layout."""
        return self.inner.axes

    @property
    def needs(self) -> frozenset[str]:
        """The sizes that the inner layout needs."""
        return self.inner.needs

    def lay_out(self, column: Tensor, inputs: Inputs) -> Any:  # noqa: ANN401 - a tensor, an array or a list
        """The column in the inner layout."""
        return self.inner.lay_out(column, inputs)

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401 - as above
        """The column, as the inner layout reads it."""
        return self.inner.read(value, sizes)

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - as above
        """The sizes that the inner layout determines."""
        return self.inner.sizes(value)

    def canonical(self, column: Tensor, batch: Batch) -> Tensor:
        """The column, as the inner layout holds it."""
        return self.inner.canonical(column, batch)

    def source(self, expression: str, sizes: Sizes) -> str:
        """Source that reads the inner layout."""
        return self.inner.source(expression, sizes)


@dataclass(frozen=True, slots=True)
class OnePrompt(_Around):
    """Responses that all belong to one prompt, for functions that are called once per prompt."""


@dataclass(frozen=True, slots=True)
class TimeFirst(_Around):
    """``[T, B]``, as collected from environments that step together."""

    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The column with its axes exchanged, as a contiguous tensor."""
        laid_out: Tensor = self.inner.lay_out(column, inputs)
        return laid_out.transpose(0, 1).contiguous()

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """The column with its axes in the usual order."""
        return self.inner.read(value.transpose(0, 1), sizes)

    @override
    def sizes(self, value: Tensor) -> Sizes:
        return self.inner.sizes(value.transpose(0, 1))

    def source(self, expression: str, sizes: Sizes) -> str:
        """Source that puts the axes in the usual order."""
        return self.inner.source(f"{expression}.transpose(0, 1)", sizes)


@dataclass(frozen=True, slots=True)
class Array(_Around):
    """A numpy array without a gradient."""

    def lay_out(self, column: Tensor, inputs: Inputs) -> np.ndarray:
        """The column as an array.

        Raises:
            NotApplicable: if the column requires a gradient, or is bfloat16.
        """
        if column.requires_grad:
            raise NotApplicable("a numpy array has no gradient")
        if column.dtype == torch.bfloat16:
            raise NotApplicable("numpy has no bfloat16")
        laid_out: Tensor = self.inner.lay_out(column, inputs)
        return laid_out.numpy()

    @override
    def read(self, value: np.ndarray, sizes: Sizes) -> Tensor:
        return self.inner.read(torch.as_tensor(value), sizes)

    @override
    def sizes(self, value: np.ndarray) -> Sizes:
        return self.inner.sizes(torch.as_tensor(value))

    def source(self, expression: str, sizes: Sizes) -> str:
        """Source that converts the array to a tensor and reads it in the inner layout."""
        return self.inner.source(f"torch.as_tensor({expression})", sizes)


def of_one_prompt(form: object) -> bool:
    """Whether a layout holds the responses of one prompt, also inside an array."""
    return isinstance(form.inner if isinstance(form, Array) else form, OnePrompt)


def is_time_first(form: object) -> bool:
    """Whether a layout has the time axis first, also inside an array."""
    return isinstance(form.inner if isinstance(form, Array) else form, TimeFirst)
