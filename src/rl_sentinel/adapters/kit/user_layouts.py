"""Layouts that only users' functions have, such as [G, K] by prompt, and conditions on batches that they need."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.requirements import group_sizes
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.core.batch import COLUMNS, Batch, with_columns
from rl_sentinel.core.call import same_value
from rl_sentinel.core.codec import Codec, Form, Inputs, Sizes
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.core.layout import Axis
from rl_sentinel.search.preconditions import first_trained
from rl_sentinel.search.transforms import padded


@dataclass(frozen=True, slots=True)
class Grouped(Form):
    """``[G, K]`` or ``[G, K, T]``: one row per prompt, with the same number of responses each."""

    @override
    def lay_out(self, column: Tensor, inputs: Inputs) -> Any:
        return column.reshape(len(group_sizes(inputs)), -1, *column.shape[1:])

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401, ARG002 - as above; the shape is enough
        """The value with its first two axes flattened."""
        flat: Tensor = value.flatten(0, 1)
        return flat

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401 - as above
        """The number of rows, and the width if there is a token axis."""
        return Sizes(rows=value.shape[0] * value.shape[1], width=value.shape[2] if value.dim() > 2 else None)

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002
        """Source that flattens the first two axes."""
        return f"{expression}.flatten(0, 1)"


@dataclass(frozen=True, slots=True)
class PromptList(Grouped):
    """A list with one tensor ``[K]`` per prompt; with ``plain``, one list of numbers."""

    plain: bool = False

    def lay_out(self, column: Tensor, inputs: Inputs) -> list[Any]:
        """One tensor or list per prompt."""
        parts = torch.split(column, group_sizes(inputs))
        return [part.tolist() for part in parts] if self.plain else list(parts)

    def read(self, value: list[Any], sizes: Sizes) -> Tensor:  # noqa: ARG002 - the list is enough
        """The numbers of all prompts, end to end."""
        return torch.cat([torch.as_tensor(part) for part in value])

    @override
    def sizes(self, value: list[Any]) -> Sizes:
        return Sizes(rows=sum(map(len, value)))


@dataclass(frozen=True, slots=True)
class GroupedTokens(Grouped):
    """``[G, K, T]``, padded at the right to one width; ``layout.extra`` adds columns of padding."""

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout field ``extra``: the extra padding."""
        return Padded().axes

    def lay_out(self, column: Tensor, inputs: Inputs) -> Tensor:
        """The column with the extra padding of the layout, reshaped by prompt."""
        grouped: Tensor = Grouped.lay_out(self, Padded().lay_out(column, inputs), inputs)
        return grouped

    def read(self, value: Tensor, sizes: Sizes) -> Tensor:
        """``[B, T]``: the first two axes flattened, without the extra padding."""
        rows: Tensor = value.flatten(0, 1)
        return Padded().read(rows, sizes)


@dataclass(frozen=True, slots=True)
class GroupedColumn(Column):
    """A column in the layout ``[G, K]``, whose shape depends on ``group``."""

    @property
    def shapes(self) -> frozenset[str]:
        """The column ``group``, which determines the shape."""
        return frozenset({"group"})


@dataclass(frozen=True, slots=True)
class GroupSize(Codec):
    """The number of responses per prompt, for functions that group by position.

    ``strided``: the responses of a prompt are not adjacent, but as many rows apart as there are prompts.
    """

    strided: bool = False

    @property
    def shapes(self) -> frozenset[str]:
        """The column ``group``, which determines the number."""
        return frozenset({"group"})

    def put(self, inputs: Inputs) -> int:
        """The number of responses per prompt, which is the same for all prompts."""
        return inputs.batch.rows // len(set(inputs.batch.group.tolist()))


@dataclass(frozen=True, slots=True)
class PromptCount(GroupSize):
    """The number of prompts, each with the same number of responses, for functions that group by position."""

    @override
    def put(self, inputs: Inputs) -> int:
        return len(set(inputs.batch.group.tolist()))


@dataclass(frozen=True, slots=True)
class TrainedTokens(Codec):
    """The number of trained tokens of the whole batch, as transformers' trainer passes ``num_items_in_batch``."""

    @property
    def shapes(self) -> frozenset[str]:
        """The column ``mask``, which determines the number."""
        return frozenset({"mask"})

    @override
    def put(self, inputs: Inputs) -> int:
        return int(inputs.batch.mask.sum())


@dataclass(frozen=True, slots=True)
class FunctionCodec(Codec):
    """An argument that a function of the user computes from the batch; it has gradients, but cannot be read back."""

    make: Callable[[Any], Any]
    of: frozenset[str]

    @property
    @override
    def columns(self) -> frozenset[str]:
        return self.of

    @property
    def unreadable(self) -> Mapping[str, str]:
        """All columns that the function reads, with the reason why they cannot be read back."""
        return dict.fromkeys(self.of, "computed by a function of the user")

    @property
    def axes(self) -> frozenset[Axis]:
        """The layout field ``extra``: the extra padding."""
        return frozenset({"extra"})

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - any value
        """The result of the function for the batch, with the padding of the layout."""
        return self.make(padded(inputs.batch, inputs.layout.extra) if inputs.layout.extra else inputs.batch)


class _ReadRecorder:
    """A batch that records the names of the columns that are read."""

    def __init__(self, batch: Batch, names: set[str]) -> None:
        self._batch, self._names = batch, names

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the batch
        self._names |= {name} & set(COLUMNS)
        if name == "live":
            self._names.add("mask")
        if name == "valid":
            self._names.add("length")
        return getattr(self._batch, name)


def function_codec(make: Callable[[Any], Any], batch: Batch, name: str = "a function in bind") -> FunctionCodec:
    """The codec for a function in ``bind``; a call with ``batch`` finds the columns that it reads.

    Raises:
        Unbindable: if the function raises, or returns ``...``.
    """
    names = set[str]()
    try:
        made = make(_ReadRecorder(batch, names))
        if "mask" in names and same_value(made, make(with_columns(batch, mask=~batch.mask))):
            names -= {"mask"}  # only its shape is read
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise Unbindable(
            f"{name} raised {message}, expected an argument that is computed from a batch: fix the function"
        ) from error
    if made is ...:
        raise Unbindable(f"{name} returns the placeholder `...`, expected an argument: return its value")
    return FunctionCodec(make, frozenset(names))


def one_advantage_per_row(batch: Batch) -> Batch:
    """Give all tokens of a row the advantage of its first trained token; unchanged if they already have it."""
    row = first_trained_value(batch.advantage, batch).unsqueeze(1).expand(batch.mask.shape)
    return batch if torch.equal(row, batch.advantage) else with_columns(batch, advantage=row.clone())


class _WithOutcome:
    """A batch whose ``token_reward`` has the outcome at the last response token."""

    def __init__(self, batch: Any) -> None:  # noqa: ANN401 - a batch, or what records its columns
        self._batch = batch

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the batch
        return TokenRewards().put(Inputs(self._batch)) if name == "token_reward" else getattr(self._batch, name)


def with_outcome_in_batch(make: Callable[[Any], Any], batch: Batch) -> Callable[[Any], Any]:
    """Wrap a function of the batch, so that a ``token_reward`` that it reads includes the outcome."""
    if "token_reward" not in function_codec(make, batch).of:
        return make
    return lambda one: make(_WithOutcome(one))


def whole_responses(batch: Batch) -> Batch:
    """Train every token of every response, for functions without a mask; unchanged if all tokens train."""
    return batch if torch.equal(batch.mask, batch.valid) else with_columns(batch, mask=batch.valid)


def full_width(batch: Batch) -> Batch:
    """Let every response fill the width and train all its tokens, for padded columns without a mask or lengths.

    The batch is unchanged if all tokens train.
    """
    if bool(batch.mask.all()):
        return batch
    every = torch.ones_like(batch.mask)
    return with_columns(batch, mask=every, length=torch.full_like(batch.length, batch.width))


def last_token_trains(batch: Batch) -> Batch:
    """Train the last token, which has the outcome, of each response with a trained token.

    The batch is unchanged if these tokens train.
    """
    last = torch.arange(1, batch.width + 1) == batch.length.unsqueeze(1)
    mask = batch.mask | (last & batch.live.unsqueeze(1))
    return batch if torch.equal(mask, batch.mask) else with_columns(batch, mask=mask)


@dataclass(frozen=True, slots=True)
class Domains:
    """Several domains, applied in order."""

    parts: tuple[Callable[[Batch], Batch], ...]

    def __call__(self, batch: Batch) -> Batch:
        """The batch, changed by all domains."""
        return reduce(lambda changed, domain: domain(changed), self.parts, batch)


def first_trained_value(column: Tensor, batch: Batch) -> Tensor:
    """``[B]``: the value at the first trained token of each row, or at its first token if none is trained."""
    return column.gather(1, first_trained(batch).unsqueeze(1)).squeeze(1)
