"""``Codec``: build one argument of a call from a batch, and read the batch back from a call's actual argument."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.core.layout import Axis, Layout


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The input from which a codec builds an argument.

    ``batch`` has the rows of the current part, ``whole`` all rows of the mini-batch (None if they are the same), and
    ``part`` is the index of this part and the number of parts. ``leaves`` collects pairs (laid-out column, leaf tensor)
    for targets that compute the gradient themselves.
    """

    batch: Batch
    settings: Settings = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    whole: Batch | None = None
    part: tuple[int, int] = (0, 1)
    leaves: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @property
    def mini_batch(self) -> Batch:
        """All rows of the mini-batch; ``batch`` may be only a part of them."""
        return self.batch if self.whole is None else self.whole


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """The shape of a batch, read from the arguments of a call before the columns are read.

    A size that no argument determines is None.

    Attributes:
        rows: number of responses, ``B``.
        width: number of response positions, ``T``.
        length, prompt_length, total_length: ``[B]``, tokens of the response, of the prompt, and of both together.
        mask: ``[B, T]``, True at trained tokens.
        outcome: ``[B]``, the reward of each response, if an argument has only this reward.
        positions: width of rows that hold prompt and response, padding included.
        tokens: total number of response tokens in a packed layout.
        extra: columns of padding that the layout added to the width.
    """

    rows: int | None = None
    width: int | None = None
    length: Tensor | None = None
    prompt_length: Tensor | None = None
    mask: Tensor | None = None
    total_length: Tensor | None = None
    outcome: Tensor | None = None
    positions: int | None = None
    tokens: int | None = None
    extra: int | None = None

    def without_extra(self, value: Tensor) -> Tensor:
        """A ``[B, T + extra]`` result without the padding that the layout added; other tensors unchanged."""
        added = self.extra and self.width is not None and value.dim() > 1 and value.shape[1] == self.width + self.extra
        return value[:, : self.width] if added else value

    def has(self, names: frozenset[str]) -> bool:
        """Whether all of these sizes are known."""
        return all(getattr(self, name) is not None for name in names)

    def merge(self, other: "Sizes") -> "Sizes":
        """These sizes; a size that is None is replaced by the size in ``other``."""
        names = [f.name for f in fields(self)]
        return Sizes(**{n: getattr(other, n) if getattr(self, n) is None else getattr(self, n) for n in names})


class Codec:
    """One argument of a call: ``put`` builds it from a case, ``take`` reads the columns back from a passed argument.

    A passed argument is the object that a call of the target got. A codec that only passes a constant, a setting or an
    earlier result carries no column. ``canonical`` returns the columns as ``take`` reads them, without the information
    that the argument cannot hold. Columns that cannot be read back at all are ``unreadable``.
    """

    @property
    def columns(self) -> frozenset[str]:
        """Columns of the batch that the argument carries."""
        return frozenset()

    @property
    def shapes(self) -> frozenset[str]:
        """Columns that determine the argument's shape but are not carried."""
        return frozenset()

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Columns that the argument depends on and that cannot be read from it, each with the reason."""
        return {}

    @property
    def modeled(self) -> frozenset[str]:
        """Columns that the target computes by calling the argument, which is a model."""
        return frozenset()

    @property
    def axes(self) -> frozenset[Axis]:
        """Layout fields that affect the argument."""
        return frozenset()

    def omitted(self, inputs: Inputs) -> bool:  # noqa: ARG002 - most arguments are always passed
        """True if the call does not pass the argument in this case."""
        return False

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - an expression: value, Call, Use, or a container of them
        """Build the argument for a case."""
        raise NotImplementedError

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401, ARG002 - a passed argument
        """Read the sizes of the batch that the argument determines."""
        return Sizes()

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401, ARG002 - a passed argument
        """Read the columns from a passed argument, in the neutral layout."""
        return {}

    def knobs(self, value: Any) -> Settings:  # noqa: ANN401, ARG002 - a passed argument
        """Read the settings from a passed argument."""
        return {}

    def references(self, value: Any) -> list[tuple["Codec", Any]]:  # noqa: ANN401 - a passed argument
        """The objects in a passed argument that carry columns, each with the codec that reads it.

        If the target later puts another object in the place of such an object, the new object is not read.
        """
        return [(self, value)] if self.columns else []

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:  # noqa: ARG002 - overridden where columns are carried
        """The columns of ``batch`` after a round trip: as ``take(put(batch))`` returns them."""
        return {}


class Form:
    """The layout of a ``[B]`` or ``[B, T]`` tensor: padded, ragged, packed, or as full sequences."""

    @property
    def axes(self) -> frozenset[Axis]:
        """Layout fields that affect a value."""
        return frozenset()

    @property
    def needs(self) -> frozenset[str]:
        """Fields of :class:`Sizes` that are needed to read a value in this layout."""
        return frozenset()

    def lay_out(self, column: Tensor, inputs: Inputs) -> Any:  # noqa: ANN401 - tensors or lists of them
        """Convert a column to this layout."""
        raise NotImplementedError

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401 - tensors or lists of them
        """Convert a value in this layout to the neutral layout."""
        raise NotImplementedError

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401, ARG002 - tensors or lists of them
        """Read the sizes of the batch that a value in this layout determines."""
        return Sizes()

    def canonical(self, column: Tensor, batch: Batch) -> Tensor:  # noqa: ARG002 - most forms lose nothing
        """The column after a round trip through this layout: positions that it cannot hold (padding) are 0."""
        return column

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002 - most forms are tensors already
        """Python source that converts the expression of a value in this layout to the neutral tensor."""
        return expression


def merge_sizes(parts: Sequence[Sizes]) -> Sizes:
    """Merge the sizes of several arguments; the first argument that determines a size decides."""
    merged = Sizes()
    for part in parts:
        merged = merged.merge(part)
    return merged


def merge_columns(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Merge the columns of several arguments; a NaN cell gets the number of the next argument with this column.

    Example:
        >>> import torch
        >>> from rl_sentinel.core.codec import merge_columns
        >>> merge_columns([{"reward": torch.tensor([1.0, torch.nan])}, {"reward": torch.tensor([3.0, 2.0])}])
        {'reward': tensor([1., 2.])}
    """
    merged: dict[str, Tensor] = {}
    for part in parts:
        for name, column in part.items():
            first = merged.setdefault(name, column)
            if first is not column and first.shape == column.shape and bool(first.isnan().any()):
                merged[name] = torch.where(first.isnan(), column, first)
    return merged
