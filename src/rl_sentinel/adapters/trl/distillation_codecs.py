"""Codecs and forms for TRL's distillation: left-padded sequences, labels and sampled completions."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.codecs import OneColumn
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.codec import Form, Inputs, Sizes


@dataclass(frozen=True, slots=True)
class LabelForm(Padded):
    """Labels ``[B, T]``: a token id where the token trains, -100 elsewhere."""

    @override
    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        laid = Padded.lay_out(self, column, inputs)
        return torch.where(laid > 0, 5, -100)

    @override
    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        return Padded.read(self, value, sizes) != -100


@dataclass(frozen=True, slots=True)
class LeftSequence(Form):
    """Left-padded sequences ``[B, S]`` of prompt and completion, in the collator's layout.

    With ``shift`` 1, position t has the value of token t + 1. ``fill`` is the value at the padding, and
    at the prompt if ``prompt`` is None.
    """

    shift: int = 0
    fill: float = 0.0
    prompt: float | None = None

    @property
    def needs(self) -> frozenset[str]:
        """``length``, which is needed to find the responses."""
        return frozenset({"length"})

    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        """Each response at the end of its row."""
        batch = inputs.batch
        prompts, width = prompt_lengths(batch), int((batch.length + torch.tensor(prompt_lengths(batch))).max())
        rows = []
        for row, n, p in zip(column, batch.length.tolist(), prompts, strict=True):
            laid = torch.full((width, *column.shape[2:]), self.fill, dtype=column.dtype)
            if self.prompt is not None:
                laid[width - n - p : width - n] = self.prompt
            start = width - n - self.shift
            rows.append(torch.cat([laid[:start], row[:n], laid[start + n :]]))
        return torch.stack(rows)

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """Each response at the start of its row, with 0 in the padding."""
        lengths: list[int] = [] if sizes.length is None else sizes.length.tolist()
        width = sizes.width or max(lengths, default=0)
        read = value.new_zeros((value.shape[0], width, *value.shape[2:]))
        for b, n in enumerate(lengths):
            start = value.shape[1] - n - self.shift
            read[b, :n] = value[b, start : start + n]
        return read

    def canonical(self, column: Tensor, batch: Batch) -> Tensor:
        """The column as it can be read back: 0 in the padding."""
        valid = batch.valid.reshape(*batch.valid.shape, *[1] * (column.dim() - 2))
        return torch.where(valid, column, torch.zeros_like(column))


@dataclass(frozen=True, slots=True)
class LeftLabels(LeftSequence):
    """Labels of whole completions in left-padded sequences; -100 elsewhere."""

    @override
    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        return torch.where(LeftSequence.lay_out(self, column, inputs) > 0, 5, -100)

    @override
    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        return LeftSequence.read(self, (value != -100).long(), sizes)

    def sizes(self, value: Tensor) -> Sizes:
        """Rows and lengths; a length is the number of labels, because every token of a completion has a label."""
        length = (value != -100).sum(1)
        return Sizes(rows=value.shape[0], length=length, width=int(length.max()))


@dataclass(frozen=True, slots=True)
class EndedCompletions(OneColumn):
    """One list of token ids per row, which ends with token 1 (EOS); every token trains."""

    name: str = "mask"

    @override
    def put(self, inputs: Inputs) -> list[list[int]]:
        return [[5] * (n - 1) + [1] for n in inputs.batch.mask.sum(1).tolist()]

    def sizes(self, value: list[list[int]]) -> Sizes:
        """The number of rows, their lengths and the width."""
        length = torch.tensor([len(ids) for ids in value])
        return Sizes(rows=len(value), length=length, width=int(length.max()))

    @override
    def take(self, value: list[list[int]], sizes: Sizes) -> Mapping[str, Tensor]:
        length = torch.tensor([len(ids) for ids in value])
        return {"mask": torch.arange(int(length.max())) < length.unsqueeze(1)}


#: Width of the prompts from which the student samples, including padding.
PROMPT_WIDTH = 2


@dataclass(frozen=True, slots=True)
class SampledSequence(Padded):
    """Sequences that the student samples: prompts of equal width, then right-padded completions."""

    shift: int = 0
    fill: float = 0.0

    @override
    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        laid = Padded.lay_out(self, column, inputs)
        around = [
            laid.new_full((laid.shape[0], n, *laid.shape[2:]), self.fill)
            for n in (PROMPT_WIDTH - self.shift, self.shift)
        ]
        return torch.cat([around[0], laid, around[1]], 1)

    @override
    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        return Padded.read(self, value[:, PROMPT_WIDTH - self.shift :], sizes)

    def sizes(self, value: Tensor) -> Sizes:
        """The number of rows, and the width."""
        return Sizes(rows=value.shape[0], width=value.shape[1] - PROMPT_WIDTH)


@dataclass(frozen=True, slots=True)
class SampledTokens(SampledSequence):
    """A mask of sampled sequences, with separate values for prompt, trained tokens and padding."""

    prompt: int = 1
    response: int = 1
    padding: int = 0

    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        """``prompt`` at the prompt, ``response`` where the mask is True, and ``padding`` where it is False."""
        laid = Padded.lay_out(self, column, inputs)
        numbers = torch.where(laid > 0, self.response, self.padding)
        return torch.cat([numbers.new_full((laid.shape[0], PROMPT_WIDTH), self.prompt), numbers], 1)

    @override
    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        return SampledSequence.read(self, value, sizes) == self.response


def prompt_lengths(batch: Batch) -> list[int]:
    """Prompt lengths: one token before responses of an even length, else two, so that a row keeps its prompt."""
    return [PROMPT_WIDTH - (n + 1) % 2 for n in batch.length.tolist()]


def whole_completions(batch: Batch) -> Batch:
    """Train every token of a response that has a trained token."""
    return with_columns(batch, mask=batch.valid & batch.live.unsqueeze(1))


def every_position(batch: Batch) -> Batch:
    """Train every position; each response fills the width."""
    return with_columns(batch, mask=torch.ones_like(batch.mask), length=torch.full_like(batch.length, batch.width))


def every_completion_trains(batch: Batch) -> Batch:
    """Train every token; each response has at least one token."""
    length = batch.length.clamp(min=1)
    return with_columns(batch, length=length, mask=torch.arange(batch.width) < length.unsqueeze(1))
