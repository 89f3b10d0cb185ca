"""Codec of a batch as a list with one dict, namespace or object per response."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.codecs import Column, Lengths, PromptIds
from rl_sentinel.adapters.kit.containers import Container
from rl_sentinel.adapters.kit.forms import Padded, PerRow, Ragged
from rl_sentinel.adapters.kit.per_response import PerResponse
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.core.call import Call
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.errors import Unbindable


@dataclass(frozen=True, slots=True)
class RowTable(Container):
    """A list with one item per response; each part is a list with one value per response, or a constant.

    Attributes:
        parts: codecs of the keys or attributes of an item.
        make: the class of an item, or its dotted path; without it, an item is a dict.
    """

    parts: Mapping[str, Codec]
    make: str | Callable[..., Any] | None = None

    def put(self, inputs: Inputs) -> list[Any]:
        """The list of items.

        Raises:
            Unbindable: if the layout of a part does not have one value or sequence per response.
        """
        columns = {name: self._column(name, part, inputs) for name, part in self.parts.items()}
        rows = [{name: column[row] for name, column in columns.items()} for row in range(inputs.batch.rows)]
        return rows if self.make is None else [Call(self.make, (), row) for row in rows]

    def get(self, value: Any, name: str) -> Any:  # noqa: ANN401 - a passed list
        """The list of the values of one key or attribute, or the value of a constant; None if an item lacks it."""
        column = [row.get(name) if isinstance(row, Mapping) else getattr(row, name, None) for row in value]
        if isinstance(self.parts[name], Constant):
            return column[0] if column else None
        return None if any(one is None for one in column) else column

    def _column(self, name: str, part: Codec, inputs: Inputs) -> list[Any]:
        column = part.put(inputs)
        if isinstance(part, Constant):
            return [column] * inputs.batch.rows
        if isinstance(column, Tensor) and column.dim():
            column = list(column)
        if not isinstance(column, list) or len(column) != inputs.batch.rows:
            raise Unbindable(
                f"{name} of the list's items has a layout without one entry per response, expected one number or one "
                'row of tokens per response: bind it to a column as [B] or [B, T], such as "reward[B]", or to a '
                "constant"
            )
        return column


def listed(codec: Codec) -> Codec:
    """The codec of a column, changed to a list with one value per response; codecs of other layouts are unchanged.

    Example:
        >>> from rl_sentinel.adapters.kit.row_table import listed
        >>> listed(Column("reward")).form.kind, listed(PromptIds("strings")).form
        ('list', 'strings-list')
    """
    if isinstance(codec, PromptIds):
        return replace(codec, form="strings-list" if codec.form == "strings" else "list")
    if isinstance(codec, PerResponse):
        return replace(codec, listed=True, grouped=False, dims=0)
    if isinstance(codec, Lengths):
        return replace(codec, form=PerRow("list"))
    if isinstance(codec, Column) and codec.form == PerRow("tensors"):
        return codec
    if isinstance(codec, Column | TokenRewards) and type(codec.form) in (Padded, PerRow):
        return replace(codec, form=Ragged() if isinstance(codec.form, Padded) else PerRow("list"))
    return codec
