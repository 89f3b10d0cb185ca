"""Layouts of user functions' arguments: prompts by responses, one number per response, offsets of packed rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import Column, OneColumn
from rl_sentinel.adapters.kit.requirements import group_sizes, groups_are_equal, prompts_are_contiguous
from rl_sentinel.core.batch import COLUMNS, Batch, take_rows, with_columns
from rl_sentinel.core.codec import Codec, Form, Inputs, Sizes
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.core.layout import Axis
from rl_sentinel.search.preconditions import first_trained
from rl_sentinel.search.transforms import padded


def prompts_have_siblings(inputs: Inputs) -> str:
    """Every prompt has at least two responses: a trainer that groups by position samples several."""
    return "" if min(group_sizes(inputs), default=2) > 1 else "a prompt has one response only"


#: Conditions of calls that find prompts by position, each with as many responses.
BY_POSITION = (prompts_are_contiguous, groups_are_equal, prompts_have_siblings)


@dataclass(frozen=True, slots=True)
class Grouped(Form):
    """``[G, K]`` or ``[G, K, T]``: the responses of each prompt together, as many for each."""

    def lay(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The rows of each prompt side by side."""
        return column.reshape(len(group_sizes(inputs)), -1, *column.shape[1:])

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:  # noqa: ARG002 - the shape says it
        """The rows one below the other."""
        return value.flatten(0, 1)

    def sizes(self, value: Tensor) -> Sizes:
        """Rows, and the width of tokens."""
        return Sizes(rows=value.shape[0] * value.shape[1], width=value.shape[2] if value.dim() > 2 else None)

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """The rows one below the other."""
        return f"{expression}.flatten(0, 1)"


@dataclass(frozen=True, slots=True)
class GroupedColumn(Column):
    """A column in the layout ``[G, K]``, which depends on the prompts of the rows."""

    @property
    def shapes(self) -> frozenset[str]:
        """The prompts."""
        return frozenset({"group"})


@dataclass(frozen=True, slots=True)
class GroupSize(Codec):
    """The number of responses of each prompt, for functions that find prompts by position."""

    @property
    def shapes(self) -> frozenset[str]:
        """The prompts."""
        return frozenset({"group"})

    def put(self, inputs: Inputs) -> int:
        """The number, which is the same for all prompts."""
        return group_sizes(inputs)[0]


@dataclass(frozen=True, slots=True)
class CumulativeLengths(Codec):
    """``[B + 1]`` int32: where each response begins in packed tokens, from 0 to their number."""

    @property
    def shapes(self) -> frozenset[str]:
        """The length."""
        return frozenset({"length"})

    def put(self, inputs: Inputs) -> Tensor:
        """The running sum of lengths, from 0."""
        return torch.nn.functional.pad(inputs.batch.length.cumsum(0), (1, 0)).to(torch.int32)

    def sizes(self, value: Tensor) -> Sizes:
        """Rows and lengths."""
        return Sizes(rows=len(value) - 1, length=value.diff().long())


def _per_row(column: Tensor, batch: Batch) -> Tensor:
    """``[B]``: the value at each row's first trained token, or at its first token where none is trained."""
    return column.gather(1, first_trained(batch).unsqueeze(1)).squeeze(1)


@dataclass(frozen=True, slots=True)
class PerResponse(OneColumn):
    """A column per token as one number per row, ``[B]``, that of the first trained token; other tokens are lost.

    ``dims`` adds axes of size 1, as in ``[B, 1]``.
    """

    name: str = "advantage"
    dims: int = 0
    grouped: bool = False

    @property
    def shapes(self) -> frozenset[str]:
        """The prompts, where rows are laid out by prompt."""
        return frozenset({"group"}) if self.grouped else frozenset()

    def put(self, inputs: Inputs) -> Tensor:
        """The number of each row."""
        column = _per_row(getattr(inputs.batch, self.name), inputs.batch)
        return Grouped().lay(column, inputs) if self.grouped else column.reshape(-1, *[1] * self.dims)

    def sizes(self, value: Tensor) -> Sizes:
        """Rows."""
        return Sizes(rows=value.numel())

    def take(self, value: Tensor, sizes: Sizes) -> Mapping[str, Tensor]:
        """The number at each token."""
        return {} if sizes.width is None else {self.name: value.reshape(-1, 1).expand(-1, sizes.width).clone()}

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:
        """The same number at each token of a row."""
        row = _per_row(getattr(batch, self.name), batch)
        return {self.name: row.unsqueeze(1).expand(batch.mask.shape).clone()}


@dataclass(frozen=True, slots=True)
class Adapted(Codec):
    """A value that a user's own function makes of the batch; it is differentiated, and not read back."""

    make: Callable[[Any], Any]
    of: frozenset[str]

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the function read."""
        return self.of

    @property
    def unreadable(self) -> Mapping[str, str]:
        """All of them."""
        return dict.fromkeys(self.of, "made by a function of the user's")

    @property
    def axes(self) -> frozenset[Axis]:
        """Padding can be added."""
        return frozenset({"extra"})

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - whatever the user makes
        """What the function makes of the rows, with the padding of the layout."""
        return self.make(padded(inputs.batch, inputs.layout.extra) if inputs.layout.extra else inputs.batch)


class _Reads:
    """A batch that notes which columns are read."""

    def __init__(self, batch: Batch, names: set[str]) -> None:
        self._batch, self._names = batch, names

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the batch
        self._names |= {name} & set(COLUMNS)
        if name in ("live", "rows", "width", "device"):
            self._names.add("mask")
        if name == "valid":
            self._names.add("length")
        return getattr(self._batch, name)


def adapted(make: Callable[[Any], Any], batch: Batch) -> Adapted:
    """The codec of a user's adapter function; the columns that it reads are those that it reads of one batch."""
    names = set[str]()
    try:
        make(_Reads(batch, names))
    except Exception as error:
        told = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise Unbindable(f"a function in bind raised {told}, expected what it makes of a batch") from error
    return Adapted(make, frozenset(names))


def equal_groups(batch: Batch) -> Batch:
    """Rows sorted by prompt, each prompt cut to the same number of rows; the batch itself if it is so."""
    inputs = Inputs(batch)
    if not prompts_are_contiguous(inputs) and not groups_are_equal(inputs):
        return batch
    rows: dict[int, list[int]] = {}
    for row, label in enumerate(batch.group.tolist()):
        rows.setdefault(label, []).append(row)
    several = [members for members in rows.values() if len(members) > 1] or list(rows.values())
    least = min(map(len, several))
    return take_rows(batch, torch.tensor([row for members in several for row in members[:least]]))


def one_advantage_per_row(batch: Batch) -> Batch:
    """Every token of a row has the advantage of its first trained one; the batch itself if it is so."""
    row = _per_row(batch.advantage, batch).unsqueeze(1).expand(batch.mask.shape)
    return batch if torch.equal(row, batch.advantage) else with_columns(batch, advantage=row.clone())


def whole_responses(batch: Batch) -> Batch:
    """Every token of every response is trained, as where a function has no mask; the batch itself if it is so."""
    return batch if torch.equal(batch.mask, batch.valid) else with_columns(batch, mask=batch.valid)


def last_token_trains(batch: Batch) -> Batch:
    """The last token of each live response, which has the outcome, is trained; the batch itself if it is so."""
    last = torch.arange(1, batch.width + 1) == batch.length.unsqueeze(1)
    mask = batch.mask | (last & batch.live.unsqueeze(1))
    return batch if torch.equal(mask, batch.mask) else with_columns(batch, mask=mask)


@dataclass(frozen=True, slots=True)
class Domains:
    """Several conditions on a batch, brought about in order."""

    parts: tuple[Callable[[Batch], Batch], ...]

    def __call__(self, batch: Batch) -> Batch:
        """The batch in all of them."""
        return reduce(lambda one, bring: bring(one), self.parts, batch)
