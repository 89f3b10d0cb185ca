"""Layouts of a tensor in a call: padded, ragged, packed end to end, full sequences, one number per row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Form, Inputs, Sizes
from rl_sentinel.core.layout import Axis


def zero_padding(column: Tensor, batch: Batch) -> Tensor:
    """``[B, T]`` or ``[B, T, V]`` with 0 at and after each response's length."""
    valid = batch.valid.reshape(*batch.valid.shape, *[1] * (column.dim() - 2))
    return torch.where(valid, column, torch.zeros_like(column))


class Unpadded(Form):
    """A layout that loses the padding."""

    def lost(self, column: Tensor, batch: Batch) -> Tensor:
        """Padding is 0."""
        return zero_padding(column, batch)


@dataclass(frozen=True, slots=True)
class Padded(Form):
    """``[B, T]``, one row per response, padded at the right to one width; ``layout.extra`` adds columns of padding."""

    @property
    def axes(self) -> frozenset[Axis]:
        """Padding can be added."""
        return frozenset({"extra"})

    def lay(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The column, with the extra padding of the layout."""
        extra = inputs.layout.extra
        return torch.cat([column, column.new_zeros(column.shape[0], extra, *column.shape[2:])], 1) if extra else column

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """The first ``T`` positions."""
        return value if value.shape[1:2] == (sizes.width,) else value[:, : sizes.width]

    def sizes(self, value: Tensor) -> Sizes:
        """Rows and width."""
        return Sizes(rows=value.shape[0], width=value.shape[1])

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002 - padding stays visible
        """The expression itself: the value is already a padded tensor."""
        return expression


@dataclass(frozen=True, slots=True)
class ZeroPadded(Unpadded, Padded):
    """As :class:`Padded`, with 0 in all padding: for callers that fill a tensor of zeros row by row."""

    def lay(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The column with zeros in the padding."""
        return Padded.lay(self, zero_padding(column, inputs.batch), inputs)


@dataclass(frozen=True, slots=True)
class RightAligned(ZeroPadded):
    """``[B, T]`` with each response at the right end of its row and zeros before it; extra padding goes to the left."""

    @property
    def needs(self) -> frozenset[str]:
        """Sizes that another argument tells."""
        return frozenset({"length"})

    def lay(self, column: Tensor, inputs: Inputs) -> Tensor:
        """Each response moved to the end of its row."""
        width = column.shape[1] + inputs.layout.extra
        rows = zip(column, inputs.batch.length.tolist(), strict=True)
        return torch.stack([pad(row[:n], (width - n, 0)) for row, n in rows])

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """Each response moved to the start of its row, 0 in the padding."""
        length = lengths_of(sizes)
        width = sizes.width or value.shape[1]
        rows = [row[value.shape[1] - n :] for row, n in zip(value, length, strict=True)]
        return torch.stack([pad(row, (0, width - row.shape[0])) for row in rows])

    def source(self, expression: str, sizes: Sizes) -> str:
        """The end of each row, padded to one tensor."""
        rows = ", ".join(f"{expression}[{row}, -{n}:]" for row, n in enumerate(lengths_of(sizes)) if n)
        return Ragged().source(f"[{rows}]", sizes)


@dataclass(frozen=True, slots=True)
class Ragged(Unpadded):
    """A list with one tensor of ``[length]`` per response, without padding; ``plain`` gives lists of numbers."""

    plain: bool = False

    def lay(self, column: Tensor, inputs: Inputs) -> list[Any]:
        """One tensor, or one list, per response."""
        parts = [column[row, :n].clone() for row, n in enumerate(inputs.batch.length.tolist())]
        return [part.tolist() for part in parts] if self.plain else parts

    def read(self, value: Sequence[Any], sizes: Sizes) -> Tensor:
        """``[B, T]`` with 0 in the padding."""
        parts = [torch.as_tensor(part) for part in value]
        width = sizes.width or max((len(part) for part in parts), default=0)
        return torch.stack([pad(part, (0, width - part.shape[0])) for part in parts])

    def sizes(self, value: Sequence[Any]) -> Sizes:
        """Rows and lengths."""
        length = torch.tensor([len(part) for part in value], dtype=torch.int64)
        return Sizes(rows=len(value), length=length)

    def source(self, expression: str, sizes: Sizes) -> str:
        """The list, padded to one tensor; a row of width ``T`` needs no more."""
        padded = f"torch.nn.utils.rnn.pad_sequence({expression}, batch_first=True)"
        missing = (sizes.width or 0) - max(lengths_of(sizes), default=0)
        return f"torch.nn.functional.pad({padded}, (0, {missing}))" if missing > 0 else padded


@dataclass(frozen=True, slots=True)
class Packed(Unpadded):
    """The tokens of all responses end to end, ``[N]``; lengths are known from another argument."""

    @property
    def needs(self) -> frozenset[str]:
        """Sizes that another argument tells."""
        return frozenset({"length"})

    def lay(self, column: Tensor, inputs: Inputs) -> Tensor:
        """Valid positions of all rows, in order."""
        return column[inputs.batch.valid.to(column.device)]

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """``[B, T]`` with 0 in the padding."""
        length = lengths_of(sizes)
        parts = list(torch.split(value, length))
        width = sizes.width or max(length, default=0)
        return torch.stack([pad(part, (0, width - part.shape[0])) for part in parts])

    def sizes(self, value: Tensor) -> Sizes:
        """The tokens of all rows."""
        return Sizes(tokens=value.shape[0])

    def source(self, expression: str, sizes: Sizes) -> str:
        """The tensor cut by the lengths and padded."""
        return Ragged().source(f"{expression}.split({lengths_of(sizes)})", sizes)


@dataclass(frozen=True, slots=True)
class PerRow(Form):
    """One number per response, ``[B]``; ``kind`` is a tensor, a list, or a column ``[B, 1]``."""

    kind: Literal["tensor", "list", "column"] = "tensor"

    def lay(self, column: Tensor, inputs: Inputs) -> Any:  # noqa: ANN401, ARG002 - a tensor or a list
        """The numbers in that form."""
        if self.kind == "list":
            return column.tolist()
        return column.unsqueeze(1) if self.kind == "column" else column

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401, ARG002 - a tensor or a list
        """``[B]``."""
        return torch.as_tensor(value).reshape(-1) if self.kind == "column" else torch.as_tensor(value)

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - a tensor or a list
        """Rows."""
        return Sizes(rows=len(value))

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """A tensor of the numbers."""
        return f"torch.tensor({expression})" if self.kind == "list" else expression


@dataclass(frozen=True, slots=True)
class Number(Form):
    """One number for the whole batch, as a tensor or a Python number."""

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401, ARG002 - a tensor or a number
        """A tensor without axes."""
        return value if isinstance(value, Tensor) else torch.tensor(float(value))

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """A tensor of the number."""
        return f"torch.as_tensor({expression})"


@dataclass(frozen=True, slots=True)
class AfterPrompt(Padded):
    """``[B, 1 + T]``: a prompt of one token, filled with ``prompt``, before the response."""

    prompt: int = 0

    def lay(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The prompt, then the column."""
        padded = Padded.lay(self, column, inputs)
        return torch.cat([padded.new_full((padded.shape[0], 1), self.prompt), padded], dim=1)

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """The positions after the prompt."""
        return Padded.read(self, value[:, 1:], sizes)

    def sizes(self, value: Tensor) -> Sizes:
        """Rows, width, and the prompt's length."""
        one = torch.ones(value.shape[0], dtype=torch.int64)
        return Sizes(rows=value.shape[0], width=value.shape[1] - 1, prompt_length=one)

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """The positions after the prompt."""
        return f"{expression}[:, 1:]"


@dataclass(frozen=True, slots=True)
class BeforeEnd(Padded):
    """``[B, T + 1]`` or ``[B, T + 1, V]``: the column, and 0 at the last position, which predicts no token."""

    def lay(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The column, then zeros."""
        padded = Padded.lay(self, column, inputs)
        return torch.cat([padded, torch.zeros_like(padded[:, :1])], dim=1)

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """The positions before the last."""
        return Padded.read(self, value[:, :-1], sizes)

    def sizes(self, value: Tensor) -> Sizes:
        """Rows and width."""
        return Sizes(rows=value.shape[0], width=value.shape[1] - 1)

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """The positions before the last."""
        return f"{expression}[:, :-1]"


@dataclass(frozen=True, slots=True)
class As(Form):
    """Another form, read as another dtype: decisions as numbers, half precision as float32."""

    form: Form
    dtype: torch.dtype

    def lay(self, column: Tensor, inputs: Inputs) -> Any:  # noqa: ANN401 - as the form
        """As the form, of the dtype."""
        return self.form.lay(column.to(self.dtype), inputs)

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401 - as the form
        """The tensor in the dtype."""
        return self.form.read(value, sizes).to(self.dtype)

    def source(self, expression: str, sizes: Sizes) -> str:
        """The form's source, cast."""
        return f"{self.form.source(expression, sizes)}.to({self.dtype})"


def lengths_of(sizes: Sizes) -> list[int]:
    """The lengths of the responses.

    Raises:
        ValueError: if no argument tells them.
    """
    if sizes.length is None:
        raise ValueError("lengths of the responses are unknown, expected an argument that carries them")
    lengths: list[int] = sizes.length.tolist()
    return lengths


def mask_of(sizes: Sizes) -> Tensor:
    """The mask.

    Raises:
        ValueError: if no argument tells it.
    """
    if sizes.mask is None:
        raise ValueError("mask is unknown, expected an argument that carries it")
    return sizes.mask
