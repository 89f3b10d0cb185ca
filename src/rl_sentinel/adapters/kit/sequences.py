"""Layouts of full sequences (prompt and response), padded or packed, and codecs of their attention mask and lengths."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from rl_sentinel.adapters.kit.codecs import FormCodec
from rl_sentinel.adapters.kit.forms import Ragged, Unpadded, lengths_of
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.codec import Codec, Form, Inputs, Sizes
from rl_sentinel.core.layout import Axis


@dataclass(frozen=True, slots=True)
class Sequence(Unpadded):
    """The prompt and the response of each row as one sequence.

    ``shift`` is 1 if position t has the value of token t + 1, as for next-token log-probs. ``fill`` is the value at
    positions without a response token, where a real model computes numbers, too.
    """

    shift: int = 0
    fill: float = 0.0

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"length", "prompt_length"})

    def sequences(self, column: Tensor, inputs: Inputs) -> list[Tensor]:
        """The sequence of each row, without padding."""
        batch = inputs.batch
        rows = []
        for row, (p, n) in enumerate(zip(batch.prompt_length.tolist(), batch.length.tolist(), strict=True)):
            before, after = p - self.shift, self.shift
            rows.append(torch.cat([self._filling(column, before), column[row, :n], self._filling(column, after)]))
        return rows

    def _filling(self, like: Tensor, count: int) -> Tensor:
        value = bool(self.fill) if like.dtype == torch.bool else self.fill
        return torch.full((count, *like.shape[2:]), value, dtype=like.dtype, device=like.device)

    def responses(self, rows: Iterable[Any], sizes: Sizes) -> Tensor:
        """``[B, T]`` from the sequence of each row, a tensor or a list of numbers; 0 in the padding."""
        length = lengths_of(sizes)
        width = sizes.width or max(length, default=0)
        starts = [p - self.shift for p in _prompts(sizes)]
        parts = [torch.as_tensor(row[start : start + n]) for row, start, n in zip(rows, starts, length, strict=True)]
        return torch.stack([pad(part, (*[0, 0] * (part.dim() - 1), 0, width - part.shape[0])) for part in parts])


@dataclass(frozen=True, slots=True)
class FullSequence(Sequence):
    """``[B, S]``: padded with 0 at the right to the longest sequence of the batch."""

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout field ``extra``: the extra padding."""
        return frozenset({"extra"})

    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The sequences, padded to one width."""
        width = int((inputs.batch.prompt_length + inputs.batch.length).max()) + inputs.layout.extra
        return torch.stack([pad(row, (0, width - row.shape[0])) for row in self.sequences(column, inputs)])

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """``[B, T]`` with 0 in the padding."""
        return self.responses(list(value), sizes)

    def sizes(self, value: Tensor) -> Sizes:
        """The number of rows and their width."""
        return Sizes(rows=value.shape[0], positions=value.shape[1])

    def source(self, expression: str, sizes: Sizes) -> str:
        """Source that slices the response of each row, and pads the responses to one tensor."""
        rows = ", ".join(f"{expression}[{row}, {low}:{high}]" for row, (low, high) in enumerate(self.spans(sizes)))
        return Ragged().source(f"[{rows}]", sizes)

    def spans(self, sizes: Sizes) -> list[tuple[int, int]]:
        """Start and end of the response in each row."""
        starts = [p - self.shift for p in _prompts(sizes)]
        return [(start, start + n) for start, n in zip(starts, lengths_of(sizes), strict=True)]


@dataclass(frozen=True, slots=True)
class PromptBatches(Form):
    """A list with one dict per prompt; each dict has the full sequences of the responses at ``key``."""

    key: str
    form: FullSequence

    @property
    @override
    def needs(self) -> frozenset[str]:
        return self.form.needs

    def read(self, value: Iterable[Mapping[str, Tensor]], sizes: Sizes) -> Tensor:
        """``[B, T]`` with 0 in the padding."""
        return self.form.responses([row for prompt in value for row in prompt[self.key]], sizes)

    def source(self, expression: str, sizes: Sizes) -> str:
        """Source that slices the response of each row, and pads the responses to one tensor."""
        rows = f"row for prompt in {expression} for row in prompt[{self.key!r}]"
        cut = f"row[low:high] for row, (low, high) in zip(({rows}), {self.form.spans(sizes)}, strict=True)"
        return Ragged().source(f"[{cut}]", sizes)


@dataclass(frozen=True, slots=True)
class PackedSequence(Sequence):
    """``[N]``: the sequences of all rows, concatenated, without padding."""

    @override
    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        return torch.cat(self.sequences(column, inputs))

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """``[B, T]`` with 0 in the padding."""
        return self.responses(list(torch.split(value, _totals(sizes))), sizes)

    def sizes(self, value: Tensor) -> Sizes:
        """The number of response tokens, if the value is one sequence with a one-token prompt."""
        return Sizes(tokens=value.shape[0] - 1)

    def source(self, expression: str, sizes: Sizes) -> str:
        """Source that slices the response of each row, and pads the responses to one tensor."""
        ends = torch.tensor([0, *_totals(sizes)]).cumsum(0).tolist()
        starts = [end + p - self.shift for end, p in zip(ends, _prompts(sizes), strict=False)]
        spans = zip(starts, lengths_of(sizes), strict=True)
        return Ragged().source("[" + ", ".join(f"{expression}[{low}:{low + n}]" for low, n in spans) + "]", sizes)


@dataclass(frozen=True, slots=True)
class RaggedSequence(Sequence):
    """A list with one sequence per row, without padding."""

    @override
    def lay_out(self, column: Tensor, inputs: Inputs) -> list[Tensor]:
        return self.sequences(column, inputs)

    def read(self, value: list[Tensor], sizes: Sizes) -> Tensor:
        """``[B, T]`` with 0 in the padding."""
        return self.responses(value, sizes)

    def sizes(self, value: list[Tensor]) -> Sizes:
        """The number of rows and the lengths of the sequences."""
        return Sizes(rows=len(value), total_length=torch.tensor([len(row) for row in value], dtype=torch.int64))


@dataclass(frozen=True, slots=True)
class ModelOutput(PackedSequence):
    """``[1, N, V]``: the output of a model for packed sequences; V is 1 for a column ``[B, T]``."""

    @override
    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        packed = PackedSequence.lay_out(self, column, inputs)
        return packed.reshape(1, packed.shape[0], -1)

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """``[B, T]`` or ``[B, T, V]`` with 0 in the padding."""
        return PackedSequence.read(self, value[0].squeeze(-1), sizes)

    def sizes(self, value: Tensor) -> Sizes:
        """The number of response tokens, if the value is one sequence with a one-token prompt."""
        return Sizes(tokens=value.shape[1] - 1)

    def source(self, expression: str, sizes: Sizes) -> str:
        """Source that slices the response of each row, and pads the responses to one tensor."""
        return PackedSequence.source(self, f"{expression}[0].squeeze(-1)", sizes)


class SequenceCodec(Codec):
    """A codec of a value whose shape depends on prompt and response lengths."""

    @property
    def shapes(self) -> frozenset[str]:
        """The columns with the lengths of prompts and responses, which determine the shape."""
        return frozenset({"length", "prompt_length"})


@dataclass(frozen=True, slots=True)
class AttentionMask(SequenceCodec, FormCodec):
    """``[B, S]``: True at every token of prompt and response; it determines the lengths of the sequences."""

    form: Form = field(default_factory=lambda: FullSequence(fill=1.0))

    @override
    def put(self, inputs: Inputs) -> Tensor:
        mask: Tensor = self.form.lay_out(inputs.batch.valid, inputs)
        return mask

    def sizes(self, value: Tensor) -> Sizes:
        """The number of rows and the lengths of the sequences."""
        return Sizes(rows=value.shape[0], total_length=value.sum(1))


@dataclass(frozen=True, slots=True)
class TokenVersions(SequenceCodec, FormCodec):
    """The weight version that sampled each token, -1 at prompt tokens; it determines the lengths of the prompts."""

    form: Sequence = field(default_factory=lambda: FullSequence(fill=-1.0))

    @property
    @override
    def columns(self) -> frozenset[str]:
        return frozenset({"version"})

    @override
    def put(self, inputs: Inputs) -> Tensor:
        versions: Tensor = self.form.lay_out(inputs.batch.version.to(torch.int32), inputs)
        return versions

    def sizes(self, value: Tensor) -> Sizes:
        """The number of rows and the lengths of the prompts; no sizes if the tokens are packed."""
        return Sizes(rows=value.shape[0], prompt_length=(value == -1).sum(1)) if value.dim() > 1 else Sizes()

    @override
    def take(self, value: Tensor, sizes: Sizes) -> Mapping[str, Tensor]:
        return {"version": self.form.read(value, sizes).long()} if sizes.has(self.form.needs) else {}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The versions, with 0 in the padding."""
        return {"version": self.form.canonical(batch.version, batch)}


def _prompts(sizes: Sizes) -> list[int]:
    if sizes.prompt_length is None:
        raise ValueError("lengths of the prompts are unknown, expected an argument that determines them")
    lengths: list[int] = sizes.prompt_length.tolist()
    return lengths


def _totals(sizes: Sizes) -> list[int]:
    return [p + n for p, n in zip(_prompts(sizes), lengths_of(sizes), strict=True)]
