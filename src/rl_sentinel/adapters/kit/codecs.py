"""Codecs of arguments that hold a column of the batch: tensors, prompt ids, lengths, masks, flags.

A codec builds an argument from a batch (``put``), and reads columns back from the ``value`` that a call got (``take``).
A column is a field of the batch, such as ``reward`` or ``mask``; its form is its layout in the argument.
"""

import uuid
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.forms import Padded, PerRow
from rl_sentinel.core.batch import COLUMNS, MODEL_COLUMNS, Batch, with_columns
from rl_sentinel.core.codec import Codec, Form, Inputs, Sizes
from rl_sentinel.core.layout import Axis
from rl_sentinel.search.transforms import padded


class OneColumn(Codec):
    """A codec of one column of the batch."""

    name: str

    @property
    @override
    def columns(self) -> frozenset[str]:
        return frozenset({self.name})

    @override
    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        return {self.name: getattr(batch, self.name)}


class FormCodec(Codec):
    """A codec of a tensor whose layout is a form."""

    form: Form

    @property
    def axes(self) -> frozenset[Axis]:
        """The fields of a layout that change how the form arranges a column."""
        return self.form.axes

    @override
    def sizes(self, value: Any) -> Sizes:
        return self.form.sizes(value)


@dataclass(frozen=True, slots=True)
class Column(OneColumn):
    """One column of the batch in a layout, optionally in another dtype.

    ``name`` is a column of :class:`~rl_sentinel.core.batch.Batch`. With ``leaf`` the target gets a detached leaf tensor
    and calls ``backward`` itself; the gradient of the leaf is used as the gradient of the column.
    """

    name: str
    form: Form = field(default_factory=Form)
    dtype: torch.dtype | None = None
    leaf: bool = False

    def __post_init__(self) -> None:
        """Choose the default layout: padded for a column per token, a tensor for a column per row."""
        if type(self.form) is Form:
            per_token = COLUMNS[self.name]["axes"].startswith("B T")
            object.__setattr__(self, "form", Padded() if per_token else PerRow())

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout fields of the form, and the dtype if a model computes the column and no dtype is fixed."""
        return self.form.axes | ({"dtype"} if self.name in MODEL_COLUMNS and self.dtype is None else frozenset())

    @override
    def put(self, inputs: Inputs) -> Any:
        column: Tensor = getattr(inputs.batch, self.name)
        if self.dtype is not None and column.dtype != self.dtype:
            column = column.to(self.dtype)
        elif inputs.layout.dtype and self.name in MODEL_COLUMNS:
            column = column.to(getattr(torch, inputs.layout.dtype))
        if not self.leaf:
            return self.form.lay_out(column, inputs)
        leaf = column.detach().clone().requires_grad_()
        inputs.leaves.append((column, leaf))
        return self.form.lay_out(leaf, inputs)

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - as the form
        """The sizes that the form determines and, for the column ``mask``, the mask."""
        sizes = self.form.sizes(value)
        if self.name != "mask" or not sizes.has(self.form.needs):
            return sizes
        return Sizes(mask=self.form.read(value, sizes).bool()).merge(sizes)

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401 - as the form
        """The column by name, with masks as bool and labels as int64.

        The mapping is empty if the call does not determine the sizes that the form needs.
        """
        if not sizes.has(self.form.needs):
            return {}
        tensor = self.form.read(value, sizes)
        role = COLUMNS[self.name]["role"]
        return {self.name: tensor.bool() if role == "mask" else tensor.long() if role == "label" else tensor}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The column without the values that the layout cannot hold."""
        return {self.name: self.form.canonical(getattr(batch, self.name), batch)}


def partition(labels: Tensor | Iterable[Hashable]) -> Tensor:
    """Labels renumbered in the order of their first rows, so that equal partitions of the rows are equal tensors.

    Example:
        >>> from rl_sentinel.adapters.kit.codecs import partition
        >>> partition(["b", "a", "b"])
        tensor([0, 1, 0])
    """
    values = labels.tolist() if isinstance(labels, Tensor | np.ndarray) else list(labels)
    order = {label: number for number, label in enumerate(dict.fromkeys(values))}
    return torch.tensor([order[label] for label in values], dtype=torch.int64)


@dataclass(frozen=True, slots=True)
class PromptIds(Codec):
    """The prompt id (or another label) of each row, as an array, a list or a tensor; read back as a partition."""

    form: Literal["strings", "strings-list", "uuids", "integers", "list", "tensor"] = "strings"
    column: str = "group"

    @property
    @override
    def columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - a numpy array, a list or a tensor
        """The labels as an array, a list or a tensor, depending on ``form``."""
        labels: Tensor = getattr(inputs.batch, self.column)
        if self.form == "tensor":
            return labels
        if self.form == "list":
            return labels.tolist()
        if self.form == "strings-list":
            return [f"prompt-{label}" for label in labels.tolist()]
        if self.form == "integers":
            return np.array(labels.tolist(), dtype=np.int64)
        if self.form == "uuids":
            return np.array([str(uuid.UUID(int=label % 2**64)) for label in labels.tolist()], dtype=object)
        return np.array([f"prompt-{label}" for label in labels.tolist()], dtype=object)

    @override
    def sizes(self, value: Any) -> Sizes:
        return Sizes(rows=len(value))

    @override
    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:
        return {self.column: partition(value)}

    @override
    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        return {self.column: partition(getattr(batch, self.column))}


@dataclass(frozen=True, slots=True)
class Lengths(Codec):
    """The length of each response, of each prompt, or of both together, in tokens."""

    of: Literal["response", "prompt", "total"] = "response"
    form: Form = field(default_factory=lambda: PerRow("list"))

    @property
    def shapes(self) -> frozenset[str]:
        """``length`` if only responses are measured, otherwise empty."""
        return frozenset({"length"}) if self.of == "response" else frozenset()

    @override
    def put(self, inputs: Inputs) -> Any:
        length, prompt = inputs.batch.length, inputs.batch.prompt_length
        return self.form.lay_out({"response": length, "prompt": prompt, "total": prompt + length}[self.of], inputs)

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - as the form
        """The lengths of responses, of prompts, or of both together."""
        lengths = self.form.read(value, Sizes()).long()
        if self.of == "response":
            return Sizes(rows=len(lengths), length=lengths)
        if self.of == "prompt":
            return Sizes(rows=len(lengths), prompt_length=lengths)
        return Sizes(rows=len(lengths), total_length=lengths)


@dataclass(frozen=True, slots=True)
class CumulativeLengths(Codec):
    """``cu_seqlens``, int32 ``[B + 1]``: the offsets of packed responses, or of prompts and responses (``total``)."""

    of: Literal["response", "total"] = "response"

    @property
    @override
    def shapes(self) -> frozenset[str]:
        return frozenset({"length"} if self.of == "response" else {"length", "prompt_length"})

    @override
    def put(self, inputs: Inputs) -> Tensor:
        lengths: Tensor = Lengths(self.of, PerRow()).put(inputs)
        return torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)

    def sizes(self, value: Tensor) -> Sizes:
        """The number of rows and the lengths."""
        return Lengths(self.of, PerRow()).sizes(value.diff())


@dataclass(frozen=True, slots=True)
class ResponseMask(FormCodec):
    """1 at every response token, trained or not; it determines the lengths of the responses."""

    form: Form = field(default_factory=Padded)
    dtype: torch.dtype = torch.int64

    @property
    def shapes(self) -> frozenset[str]:
        """The column of response lengths, which determines the shape."""
        return frozenset({"length"})

    @override
    def put(self, inputs: Inputs) -> Any:
        return self.form.lay_out(inputs.batch.valid.to(self.dtype), inputs)

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - a tensor of masks
        """The sizes of the form, and the lengths: the number of ones in each row, without the prompt."""
        sizes = self.form.sizes(value)
        prompt = 0 if sizes.prompt_length is None else sizes.prompt_length
        return Sizes(length=(value != 0).sum(1) - prompt).merge(sizes)


@dataclass(frozen=True, slots=True)
class Labels(OneColumn):
    """A ``[B]`` column as a list of Python values, such as flags in metadata."""

    name: str

    @override
    def put(self, inputs: Inputs) -> list[Any]:
        column: Tensor = getattr(inputs.batch, self.name)
        return column.tolist()

    @override
    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:
        return {self.name: torch.tensor(value)}


@dataclass(frozen=True, slots=True)
class WholeBatch(Codec):
    """The batch itself, for functions of this package; ``names`` are the columns that they read."""

    names: frozenset[str]

    @property
    @override
    def columns(self) -> frozenset[str]:
        return self.names

    @property
    def axes(self) -> frozenset[Axis]:
        """The extra padding, and the dtype if a model computes one of the columns."""
        return frozenset({"extra", "dtype"} if self.names & MODEL_COLUMNS else {"extra"})

    def put(self, inputs: Inputs) -> Batch:
        """The batch with the padding of the layout, and its dtype in the columns that a model computes."""
        batch, layout = inputs.batch, inputs.layout
        if layout.dtype:
            kind = getattr(torch, layout.dtype)
            batch = with_columns(batch, **{name: getattr(batch, name).to(kind) for name in self.names & MODEL_COLUMNS})
        return padded(batch, layout.extra) if layout.extra else batch

    @override
    def sizes(self, value: Batch) -> Sizes:
        return Sizes(value.rows, value.width, value.length, value.prompt_length, value.mask)

    def take(self, value: Batch, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ARG002 - columns have their own shape
        """All columns, because a batch always has all of them."""
        return self.canonical(value)

    @override
    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        return {name: getattr(batch, name) for name in COLUMNS}
