"""Codecs of a token column as one number per response: ``[B]``, ``[B, 1]``, ``[G, K]``, ``[K]``, or a list."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.codecs import OneColumn
from rl_sentinel.adapters.kit.forms import PerRow
from rl_sentinel.adapters.kit.user_layouts import Grouped, first_trained_value
from rl_sentinel.adapters.kit.wrapped_forms import OnePrompt
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Inputs, Sizes


@dataclass(frozen=True, slots=True)
class PerResponse(OneColumn):
    """A ``[B, T]`` column as one number per row, ``[B]``: the value at the first trained token.

    ``dims`` is the number of trailing axes of size 1, as in ``[B, 1]``; ``grouped`` gives ``[G, K]``, and
    ``listed`` a list.
    """

    name: str = "advantage"
    dims: int = 0
    grouped: bool = False
    listed: bool = False

    @property
    def shapes(self) -> frozenset[str]:
        """The column ``group``, which determines the shape in the layout ``[G, K]``."""
        return frozenset({"group"}) if self.grouped else frozenset()

    @override
    def put(self, inputs: Inputs) -> Any:
        column = first_trained_value(getattr(inputs.batch, self.name), inputs.batch)
        if self.listed:
            return column.tolist()
        return Grouped().lay_out(column, inputs) if self.grouped else column.reshape(-1, *[1] * self.dims)

    @override
    def sizes(self, value: Any) -> Sizes:
        return Sizes(rows=torch.as_tensor(value).numel())

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401 - a tensor or a list
        """The number of each row, repeated at each token; empty if the width is unknown."""
        row = torch.as_tensor(value).reshape(-1, 1)
        return {} if sizes.width is None else {self.name: row.expand(-1, sizes.width).clone()}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The value at the first trained token of each row, repeated at each token, as :meth:`take` reads it."""
        row = first_trained_value(getattr(batch, self.name), batch)
        return {self.name: row.unsqueeze(1).expand(batch.mask.shape).clone()}


@dataclass(frozen=True, slots=True)
class PerResponseOfPrompt(PerResponse):
    """A :class:`PerResponse` for a function that is called once per prompt: ``[K]``, or a list."""

    @property
    def form(self) -> OnePrompt:
        """The layout of the responses of one prompt."""
        return OnePrompt(PerRow("list" if self.listed else "tensor"))
