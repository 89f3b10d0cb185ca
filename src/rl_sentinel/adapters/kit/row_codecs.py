"""Codecs of the fields of sample objects, one object per response."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.codecs import OneColumn
from rl_sentinel.adapters.kit.forms import zero_padding
from rl_sentinel.core.batch import COLUMNS, Batch
from rl_sentinel.core.codec import Codec, Inputs, Sizes


@dataclass(frozen=True, slots=True)
class Cell(OneColumn):
    """A ``[B]`` column as a Python number per sample."""

    name: str
    kind: Literal["float", "int", "bool"] = "float"

    @override
    def put(self, inputs: Inputs) -> float | int | bool:
        column: Tensor = getattr(inputs.batch, self.name)
        return column[0].item()

    @override
    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:
        dtype = {"float": torch.float32, "int": torch.int64, "bool": torch.bool}[self.kind]
        return {self.name: torch.tensor([value], dtype=dtype)}


@dataclass(frozen=True, slots=True)
class HasLabel(OneColumn):
    """A bool per sample: whether a label has this value; other values of the label cannot be read back."""

    name: str
    value: int

    @override
    def put(self, inputs: Inputs) -> bool:
        column: Tensor = getattr(inputs.batch, self.name)
        return int(column[0]) == self.value

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401, ARG002 - a bool
        """The label's value if the flag is set, else 0."""
        return {self.name: torch.tensor([self.value if value else 0])}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The label where it has this value, else 0."""
        column: Tensor = getattr(batch, self.name)
        return {self.name: torch.where(column == self.value, self.value, 0)}


@dataclass(frozen=True, slots=True)
class RowLength(Codec):
    """The length of the response as an integer per sample."""

    @property
    def shapes(self) -> frozenset[str]:
        """The column of response lengths, which determines the number."""
        return frozenset({"length"})

    @override
    def put(self, inputs: Inputs) -> int:
        return int(inputs.batch.length[0])

    @override
    def sizes(self, value: Any) -> Sizes:
        return Sizes(length=torch.tensor([value], dtype=torch.int64))


@dataclass(frozen=True, slots=True)
class RowPrompt(Codec):
    """The prompt as a list of tokens per sample, all 0."""

    @property
    def shapes(self) -> frozenset[str]:
        """The column of prompt lengths, which determines the shape."""
        return frozenset({"prompt_length"})

    @override
    def put(self, inputs: Inputs) -> list[int]:
        return [0] * int(inputs.batch.prompt_length[0])

    @override
    def sizes(self, value: Any) -> Sizes:
        return Sizes(prompt_length=torch.tensor([len(value)], dtype=torch.int64))


@dataclass(frozen=True, slots=True)
class RowTokens(OneColumn):
    """A ``[B, T]`` column as a list of numbers per sample."""

    name: str
    kind: Literal["float", "int", "bool"] = "float"

    def put(self, inputs: Inputs) -> list[Any]:
        """The values of the row at the response tokens."""
        column: Tensor = getattr(inputs.batch, self.name)[0, : int(inputs.batch.length[0])]
        return (column.int() if self.kind == "int" else column).tolist()

    @override
    def sizes(self, value: Any) -> Sizes:
        return Sizes(length=torch.tensor([len(value)], dtype=torch.int64))

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401 - a list of numbers
        """The column with this row only, padded with 0."""
        role = COLUMNS[self.name]["role"]
        dtype = {"signal": torch.float32, "label": torch.int64, "mask": torch.bool}[role]
        row = torch.zeros(1, sizes.width or len(value), dtype=dtype)
        row[0, : len(value)] = torch.tensor(value, dtype=dtype)
        return {self.name: row}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The column with 0 in the padding."""
        return {self.name: zero_padding(getattr(batch, self.name), batch)}


@dataclass(frozen=True, slots=True)
class RowSequence(RowTokens):
    """A ``[B, T]`` column as a list of numbers per sample, after one 0 per token of the prompt."""

    @property
    def shapes(self) -> frozenset[str]:
        """The column of prompt lengths, which determines the shape."""
        return frozenset({"prompt_length"})

    def put(self, inputs: Inputs) -> list[Any]:
        """Zeros for the prompt, then the values at the response tokens."""
        return [0] * int(inputs.batch.prompt_length[0]) + RowTokens.put(self, inputs)

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - a list of numbers
        """The length of prompt and response together."""
        return Sizes(total_length=torch.tensor([len(value)], dtype=torch.int64))

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401 - a list of numbers
        """A column of one row, padded with 0; empty if the length of the response is unknown."""
        if sizes.length is None:
            return {}
        return RowTokens.take(self, value[len(value) - int(sizes.length[0]) :], sizes)
