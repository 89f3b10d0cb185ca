"""Codecs of columns: a tensor per column, prompt ids, lengths, masks, flags."""

import uuid
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.kit.forms import Padded, PerRow
from rl_sentinel.core.batch import COLUMNS, MODEL_COLUMNS, Batch
from rl_sentinel.core.codec import Codec, Form, Inputs, Sizes
from rl_sentinel.core.layout import Axis


@dataclass(frozen=True, slots=True)
class Column(Codec):
    """One column of the batch in a layout, optionally in another dtype, or detached as a leaf of the target's own.

    ``name`` is a column of :class:`~rl_sentinel.core.batch.Batch`. With ``leaf`` the target differentiates the tensor
    itself (its own ``backward``); the gradient that it leaves there counts as that of the column.
    """

    name: str
    form: Form = field(default_factory=Form)
    dtype: torch.dtype | None = None
    leaf: bool = False

    def __post_init__(self) -> None:
        """A column per token is padded, and one per row a tensor, unless stated."""
        if type(self.form) is Form:
            per_token = COLUMNS[self.name]["axes"].startswith("B T")
            object.__setattr__(self, "form", Padded() if per_token else PerRow())

    @property
    def columns(self) -> frozenset[str]:
        """The column."""
        return frozenset({self.name})

    @property
    def axes(self) -> frozenset[Axis]:
        """Those of the form, and the precision of what a model computes."""
        return self.form.axes | ({"dtype"} if self.name in MODEL_COLUMNS and self.dtype is None else frozenset())

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - as the form
        """The column, laid out."""
        column: Tensor = getattr(inputs.batch, self.name)
        if self.dtype is not None and column.dtype != self.dtype:
            column = column.to(self.dtype)
        elif inputs.layout.dtype and self.name in MODEL_COLUMNS:
            column = column.to(getattr(torch, inputs.layout.dtype))
        if not self.leaf:
            return self.form.lay(column, inputs)
        leaf = column.detach().clone().requires_grad_()
        inputs.leaves.append((column, leaf))
        return self.form.lay(leaf, inputs)

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - as the form
        """What the form tells, and the mask itself."""
        told = self.form.sizes(value)
        if self.name != "mask" or not told.tell(self.form.needs):
            return told
        return Sizes(mask=self.form.read(value, told).bool()).merge(told)

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401 - as the form
        """The column, in the dtype of its role; nothing where the layout cannot be read from the call alone."""
        if not sizes.tell(self.form.needs):
            return {}
        tensor = self.form.read(value, sizes)
        role = COLUMNS[self.name]["role"]
        return {self.name: tensor.bool() if role == "mask" else tensor.long() if role == "label" else tensor}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The column without what the layout loses."""
        return {self.name: self.form.lost(getattr(batch, self.name), batch)}


def partition(labels: Tensor | Iterable[Hashable]) -> Tensor:
    """Labels renumbered in the order of their first rows: all that another spelling of them keeps.

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
    """The prompt of each row: a numpy array of strings, integers, a list or a tensor; labels become a partition."""

    form: Literal["strings", "strings-list", "uuids", "integers", "list", "tensor"] = "strings"
    column: str = "group"

    @property
    def columns(self) -> frozenset[str]:
        """The labels."""
        return frozenset({self.column})

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - a numpy array, a list or a tensor
        """The labels in this form."""
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

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - anything of one label per row
        """Rows."""
        return Sizes(rows=len(value))

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401, ARG002 - as above
        """The partition."""
        return {self.column: partition(value)}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The labels, renumbered."""
        return {self.column: partition(getattr(batch, self.column))}


@dataclass(frozen=True, slots=True)
class Lengths(Codec):
    """Lengths in tokens: of the response, of the prompt, or of both together."""

    of: Literal["response", "prompt", "total"] = "response"
    form: Form = field(default_factory=lambda: PerRow("list"))

    @property
    def shapes(self) -> frozenset[str]:
        """The length; prompts decide nothing that a law moves."""
        return frozenset({"length"}) if self.of == "response" else frozenset()

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - as the form
        """The lengths."""
        length, prompt = inputs.batch.length, inputs.batch.prompt_length
        return self.form.lay({"response": length, "prompt": prompt, "total": prompt + length}[self.of], inputs)

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - as the form
        """The lengths of responses, of prompts, or of both together."""
        told = self.form.read(value, Sizes()).long()
        if self.of == "response":
            return Sizes(rows=len(told), length=told)
        if self.of == "prompt":
            return Sizes(rows=len(told), prompt_length=told)
        return Sizes(rows=len(told), total_length=told)


@dataclass(frozen=True, slots=True)
class ResponseMask(Codec):
    """1 at every response token, trained or not: it tells the lengths of the responses."""

    form: Form = field(default_factory=Padded)
    dtype: torch.dtype = torch.int64

    @property
    def shapes(self) -> frozenset[str]:
        """The length."""
        return frozenset({"length"})

    @property
    def axes(self) -> frozenset[Axis]:
        """Those of the form."""
        return self.form.axes

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - as the form
        """The mask, laid out."""
        return self.form.lay(inputs.batch.valid.to(self.dtype), inputs)

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - a tensor of masks
        """Rows, width and lengths: wherever a row's tokens are, they are counted."""
        told = self.form.sizes(value)
        prompt = 0 if told.prompt_length is None else told.prompt_length
        return Sizes(length=(value != 0).sum(1) - prompt).merge(told)


@dataclass(frozen=True, slots=True)
class Labels(Codec):
    """A column per row as a list of Python values, such as flags in metadata."""

    name: str

    @property
    def columns(self) -> frozenset[str]:
        """The column."""
        return frozenset({self.name})

    def put(self, inputs: Inputs) -> list[Any]:
        """The values."""
        column: Tensor = getattr(inputs.batch, self.name)
        return column.tolist()

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401, ARG002 - a list
        """The column."""
        return {self.name: torch.tensor(value)}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The column as it is."""
        return {self.name: getattr(batch, self.name)}
