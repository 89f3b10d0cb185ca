"""Forms: the layout of a column in the tensors of a call: padded, ragged, packed, right-aligned, one number per row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Form, Inputs, Sizes
from rl_sentinel.core.layout import Axis


def zero_padding(column: Tensor, batch: Batch) -> Tensor:
    """The ``[B, T]`` or ``[B, T, V]`` column with 0 in the padding."""
    valid = batch.valid.reshape(*batch.valid.shape, *[1] * (column.dim() - 2))
    return torch.where(valid, column, torch.zeros_like(column))


class Unpadded(Form):
    """A layout that discards the values in the padding of a column."""

    def canonical(self, column: Tensor, batch: Batch) -> Tensor:
        """The column with 0 in the padding."""
        return zero_padding(column, batch)


@dataclass(frozen=True, slots=True)
class Padded(Form):
    """``[B, T]``, one row per response, padded at the right to one width; ``layout.extra`` adds columns of padding."""

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout field ``extra``: the extra padding."""
        return frozenset({"extra"})

    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The column with the extra padding of the layout."""
        extra = inputs.layout.extra
        return torch.cat([column, column.new_zeros(column.shape[0], extra, *column.shape[2:])], 1) if extra else column

    @override
    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        return value if value.shape[1:2] == (sizes.width,) else value[:, : sizes.width]

    def sizes(self, value: Tensor) -> Sizes:
        """The number of rows and the width."""
        return Sizes(rows=value.shape[0], width=value.shape[1])

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002 - extra padding is not removed
        """The expression of the value, unchanged, because it is a padded tensor."""
        return expression


@dataclass(frozen=True, slots=True)
class ZeroPadded(Unpadded, Padded):
    """Like :class:`Padded`, with 0 in the padding: for callers that fill a tensor of zeros row by row."""

    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The column with 0 in the padding."""
        return Padded.lay_out(self, zero_padding(column, inputs.batch), inputs)


@dataclass(frozen=True, slots=True)
class RightAligned(ZeroPadded):
    """``[B, T]`` with each response at the right end of its row and zeros before it; extra padding is at the left."""

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"length"})

    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        """Each response, moved to the end of its row."""
        width = column.shape[1] + inputs.layout.extra
        rows = zip(column, inputs.batch.length.tolist(), strict=True)
        return torch.stack([pad(row[:n], (width - n, 0)) for row, n in rows])

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """Each response, moved to the start of its row, with 0 in the padding."""
        length = lengths_of(sizes)
        width = sizes.width or value.shape[1]
        rows = [row[value.shape[1] - n :] for row, n in zip(value, length, strict=True)]
        return torch.stack([pad(row, (0, width - row.shape[0])) for row in rows])

    def source(self, expression: str, sizes: Sizes) -> str:
        """Source that takes the response at the end of each row, and pads the responses to one tensor."""
        ends = (f"-{n}:" if n else ":0" for n in lengths_of(sizes))
        rows = ", ".join(f"{expression}[{row}, {end}]" for row, end in enumerate(ends))
        return Ragged().source(f"[{rows}]", sizes)


@dataclass(frozen=True, slots=True)
class Ragged(Unpadded):
    """A list with one tensor ``[length]`` per response, without padding; with ``plain``, lists of numbers."""

    plain: bool = False

    def lay_out(self, column: Tensor, inputs: Inputs) -> list[Any]:
        """One tensor or list per response."""
        parts = [column[row, :n].clone() for row, n in enumerate(inputs.batch.length.tolist())]
        return [part.tolist() for part in parts] if self.plain else parts

    def read(self, value: Sequence[Any], sizes: Sizes) -> Tensor:
        """``[B, T]`` with 0 in the padding.

        Raises:
            ValueError: if a response has more numbers than tokens, because nothing would be compared with the rest.
        """
        parts = [torch.as_tensor(part) for part in value]
        for row, (part, tokens) in enumerate(
            zip(parts, lengths_of(sizes) if sizes.length is not None else (), strict=False)
        ):
            if part.shape[0] > tokens:
                message = f"response {row} has {part.shape[0]} numbers, expected one for each of its {tokens} tokens"
                raise ValueError(message)
        width = sizes.width or max((len(part) for part in parts), default=0)
        return torch.stack([pad(part, (*[0, 0] * (part.dim() - 1), 0, width - part.shape[0])) for part in parts])

    def sizes(self, value: Sequence[Any]) -> Sizes:
        """The number of rows and the lengths."""
        length = torch.tensor([len(part) for part in value], dtype=torch.int64)
        return Sizes(rows=len(value), length=length)

    def source(self, expression: str, sizes: Sizes) -> str:
        """Source that pads the tensors of the list to one tensor of width ``T``."""
        padded = f"torch.nn.utils.rnn.pad_sequence({expression}, batch_first=True)"
        missing = (sizes.width or 0) - max(lengths_of(sizes), default=0)
        return f"torch.nn.functional.pad({padded}, (0, {missing}))" if missing > 0 else padded


@dataclass(frozen=True, slots=True)
class Packed(Unpadded):
    """``[N]``: the tokens of all responses, concatenated; another argument determines the lengths."""

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"length"})

    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The valid positions of all rows, in order."""
        return column[inputs.batch.valid.to(column.device)]

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """``[B, T]`` with 0 in the padding."""
        length = lengths_of(sizes)
        parts = list(torch.split(value, length))
        width = sizes.width or max(length, default=0)
        return torch.stack([pad(part, (0, width - part.shape[0])) for part in parts])

    @override
    def sizes(self, value: Tensor) -> Sizes:
        return Sizes(tokens=value.shape[0])

    def source(self, expression: str, sizes: Sizes) -> str:
        """Source that splits the tensor by the lengths and pads the parts."""
        return Ragged().source(f"{expression}.split({lengths_of(sizes)})", sizes)


@dataclass(frozen=True, slots=True)
class PerRow(Form):
    """One number per response: a tensor ``[B]``, a list of numbers or of tensors, or a column ``[B, 1]``."""

    kind: Literal["tensor", "list", "tensors", "column"] = "tensor"

    def lay_out(self, column: Tensor, inputs: Inputs) -> Any:  # noqa: ANN401, ARG002 - a tensor or a list
        """The numbers as a tensor, a list or a column, depending on ``kind``."""
        if self.kind == "list":
            return column.tolist()
        if self.kind == "tensors":
            return list(column)
        return column.unsqueeze(1) if self.kind == "column" else column

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401, ARG002 - a tensor or a list
        """The numbers as a tensor ``[B]``."""
        if self.kind == "tensors":
            return torch.stack(value)
        return torch.as_tensor(value).reshape(-1) if self.kind == "column" else torch.as_tensor(value)

    @override
    def sizes(self, value: Any) -> Sizes:
        return Sizes(rows=len(value))

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """Source of a tensor of the numbers."""
        make = {"list": "torch.tensor", "tensors": "torch.stack"}.get(self.kind)
        return f"{make}({expression})" if make else expression


@dataclass(frozen=True, slots=True)
class Number(Form):
    """One number for the whole batch, as a tensor or a Python number."""

    @override
    def read(self, value: Any, sizes: Sizes) -> Tensor:
        return value if isinstance(value, Tensor) else torch.tensor(float(value))

    @override
    def source(self, expression: str, sizes: Sizes) -> str:
        return f"torch.as_tensor({expression})"


@dataclass(frozen=True, slots=True)
class AfterPrompt(Padded):
    """``[B, 1 + T]``: a one-token prompt with the value ``prompt``, then the response."""

    prompt: int = 0

    @override
    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        padded = Padded.lay_out(self, column, inputs)
        return torch.cat([padded.new_full((padded.shape[0], 1), self.prompt), padded], dim=1)

    @override
    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        return Padded.read(self, value[:, 1:], sizes)

    def sizes(self, value: Tensor) -> Sizes:
        """The number of rows, the width, and the length of the prompt."""
        one = torch.ones(value.shape[0], dtype=torch.int64)
        return Sizes(rows=value.shape[0], width=value.shape[1] - 1, prompt_length=one)

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """Source of the positions after the prompt."""
        return f"{expression}[:, 1:]"


@dataclass(frozen=True, slots=True)
class BeforeEnd(Padded):
    """``[B, T + 1]`` or ``[B, T + 1, V]``: the column, and 0 at the last position, which predicts no token."""

    @override
    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        padded = Padded.lay_out(self, column, inputs)
        return torch.cat([padded, torch.zeros_like(padded[:, :1])], dim=1)

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """The positions before the last position."""
        return Padded.read(self, value[:, :-1], sizes)

    def sizes(self, value: Tensor) -> Sizes:
        """The number of rows and the width."""
        return Sizes(rows=value.shape[0], width=value.shape[1] - 1)

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """Source of the positions before the last position."""
        return f"{expression}[:, :-1]"


@dataclass(frozen=True, slots=True)
class Cast(Form):
    """Another form with a dtype conversion, e.g. a boolean mask from integers, float32 from half precision."""

    form: Form
    dtype: torch.dtype

    def lay_out(self, column: Tensor, inputs: Inputs) -> Any:  # noqa: ANN401 - as the form
        """The column in the dtype, laid out by the form."""
        return self.form.lay_out(column.to(self.dtype), inputs)

    @override
    def read(self, value: Any, sizes: Sizes) -> Tensor:
        return self.form.read(value, sizes).to(self.dtype)

    def source(self, expression: str, sizes: Sizes) -> str:
        """The source of the form, with a conversion of the dtype."""
        return f"{self.form.source(expression, sizes)}.to({self.dtype})"


def lengths_of(sizes: Sizes) -> list[int]:
    """The lengths of the responses.

    Raises:
        ValueError: if no argument determines the lengths.
    """
    if sizes.length is None:
        raise ValueError("lengths of the responses are unknown, expected an argument that determines them")
    lengths: list[int] = sizes.length.tolist()
    return lengths


def mask_of(sizes: Sizes) -> Tensor:
    """The mask of trained tokens, ``[B, T]``.

    Raises:
        ValueError: if no argument determines the mask.
    """
    if sizes.mask is None:
        raise ValueError("mask is unknown, expected an argument that determines it")
    return sizes.mask
