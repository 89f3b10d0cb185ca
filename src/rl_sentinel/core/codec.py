"""How one argument of a call is built from a batch, and read back from a live call."""

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
    """What a codec builds an argument from.

    ``batch`` has the rows of the current cut, ``whole`` all rows of the mini-batch; ``part`` counts the cut and
    the number of cuts. ``leaves`` collects pairs of a column as laid out and the leaf tensor that the target
    differentiates itself.
    """

    batch: Batch
    settings: Settings = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    whole: Batch | None = None
    part: tuple[int, int] = (0, 1)
    leaves: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @property
    def mini_batch(self) -> Batch:
        """All rows of the mini-batch, of which ``batch`` may be a cut."""
        return self.batch if self.whole is None else self.whole


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """The shape of a batch, read from the arguments of a call before its columns are.

    ``length``, ``prompt_length`` and ``total_length`` (both together) are ``[B]`` tokens; ``mask`` is ``[B, T]``.
    ``outcome`` is the ``[B]`` reward of each response, where an argument carries it alone. ``positions`` is the width
    of rows that hold prompt and response, padding included; ``tokens`` the number of packed response tokens, were all
    rows one; ``extra`` the columns of padding that the layout added to the width. A size that no argument tells is
    None.
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
        """A ``[B, T + extra]`` result without the padding that the layout added; any other as it is."""
        added = self.extra and self.width is not None and value.dim() > 1 and value.shape[1] == self.width + self.extra
        return value[:, : self.width] if added else value

    def tell(self, names: frozenset[str]) -> bool:
        """Whether all of these sizes are known."""
        return all(getattr(self, name) is not None for name in names)

    def merge(self, other: "Sizes") -> "Sizes":
        """These sizes, completed by the ``other`` ones where they are None."""
        names = [f.name for f in fields(self)]
        return Sizes(**{n: getattr(other, n) if getattr(self, n) is None else getattr(self, n) for n in names})


class Codec:
    """One argument of a call: ``put`` builds it from a case, ``take`` reads the columns back from a live value.

    A codec that only passes a constant, a knob or an earlier result carries no column. ``canonical`` gives the columns
    as they come back: what the codec cannot carry is lost there, and nowhere else. Columns that do not come back at all
    are ``unreadable``.
    """

    @property
    def columns(self) -> frozenset[str]:
        """Columns of the batch that the argument carries."""
        return frozenset()

    @property
    def shapes(self) -> frozenset[str]:
        """Columns that decide the argument's shape, and are not carried."""
        return frozenset()

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Columns that the argument depends on and that cannot be read from it, each with the reason."""
        return {}

    @property
    def axes(self) -> frozenset[Axis]:
        """Layout fields that the argument follows."""
        return frozenset()

    def put(self, inputs: Inputs) -> Any:  # noqa: ANN401 - an expression: value, Call, Use, or a container of them
        """The argument for a case."""
        raise NotImplementedError

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401, ARG002 - a live argument
        """The sizes of the batch that can be read from the argument."""
        return Sizes()

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401, ARG002 - a live argument
        """The columns that a live argument carries, in the neutral layout."""
        return {}

    def knobs(self, value: Any) -> Settings:  # noqa: ANN401, ARG002 - a live argument
        """The settings that a live argument carries."""
        return {}

    def references(self, value: Any) -> list[tuple["Codec", Any]]:  # noqa: ANN401 - a live argument
        """The parts of a live argument that carry columns, as they are passed: what replaces them later is not seen."""
        return [(self, value)] if self.columns else []

    def canonical(self, batch: Batch) -> Mapping[str, Tensor]:  # noqa: ARG002 - overridden where columns are carried
        """The columns of ``batch`` as ``take(put(batch))`` gives them."""
        return {}


class Form:
    """How a ``[B]`` or ``[B, T]`` tensor is laid out: padded, ragged, packed, as full sequences."""

    @property
    def axes(self) -> frozenset[Axis]:
        """Layout fields that a value follows."""
        return frozenset()

    @property
    def needs(self) -> frozenset[str]:
        """Fields of :class:`Sizes` without which a value in this layout cannot be read."""
        return frozenset()

    def lay(self, column: Tensor, inputs: Inputs) -> Any:  # noqa: ANN401 - tensors or lists of them
        """The column in this layout."""
        raise NotImplementedError

    def read(self, value: Any, sizes: Sizes) -> Tensor:  # noqa: ANN401 - tensors or lists of them
        """The tensor in the neutral layout."""
        raise NotImplementedError

    def sizes(self, value: Any) -> Sizes:  # noqa: ANN401, ARG002 - tensors or lists of them
        """The sizes of the batch that can be read from a value in this layout."""
        return Sizes()

    def lost(self, column: Tensor, batch: Batch) -> Tensor:  # noqa: ARG002 - most forms lose nothing
        """The column as it comes back: what the layout cannot hold (padding) is 0."""
        return column

    def source(self, expression: str, sizes: Sizes) -> str:  # noqa: ARG002 - most forms are tensors already
        """Python source that reads the neutral tensor from the expression of a value in this layout."""
        return expression


def merge_sizes(parts: Sequence[Sizes]) -> Sizes:
    """One record of sizes from those of several arguments."""
    merged = Sizes()
    for part in parts:
        merged = merged.merge(part)
    return merged


def merge_columns(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The columns of several arguments; the first one holds, and a cell that is NaN in it is taken from the next.

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
