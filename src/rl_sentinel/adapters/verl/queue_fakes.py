"""A fake of the transfer queue, which passes batch columns between verl's v1 trainer and its workers."""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from rl_sentinel.adapters.source_reads import remembered


@dataclass
class QueuedBatch:
    """The object that verl passes in place of a batch: the keys of its rows, and a tag per row."""

    keys: list[str]
    partition_id: str = "train"
    tags: list[dict[str, Any]] = field(default_factory=list)
    extra_info: dict[str, Any] = field(default_factory=dict)
    fields: list[str] | None = None

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.keys)


class Queue:
    """The functions of the module ``transfer_queue`` that the trainer calls; rows are kept in this process."""

    rows: ClassVar[dict[str, dict[str, Any]]] = {}

    @classmethod
    def fill(cls, keys: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> None:
        """Replace all rows; a column is a sequence of tensors or other values, one per row."""
        cls.rows = {key: {name: column[row] for name, column in columns.items()} for row, key in enumerate(keys)}

    @classmethod
    def kv_batch_get(
        cls, keys: Sequence[str], partition_id: str, select_fields: Iterable[str] | None = None, **_about: object
    ) -> Any:  # noqa: ANN401 - a TensorDict
        """The rows of these keys: tensors as a jagged tensor, other values as a stack; absent fields are left out."""
        from tensordict import NonTensorStack, TensorDict  # noqa: PLC0415 - installed only with the target

        del partition_id
        rows = [cls.rows[key] for key in keys]
        names = [name for name in (select_fields or rows[0]) if all(name in row for row in rows)]
        columns = {name: [row[name] for row in rows] for name in names}
        fields = {
            name: torch.nested.as_nested_tensor(values, layout=torch.jagged)
            if isinstance(values[0], Tensor)
            else NonTensorStack(*values)
            for name, values in columns.items()
        }
        return TensorDict(fields, batch_size=len(rows))

    @classmethod
    def kv_batch_put(
        cls,
        keys: Sequence[str],
        partition_id: str,
        fields: Any = None,  # noqa: ANN401 - a TensorDict
        tags: list[dict[str, Any]] | None = None,
    ) -> QueuedBatch:
        """Add fields to the rows of these keys."""
        for name in () if fields is None else fields.keys():
            values = _values(fields[name])
            for key, value in zip(keys, values, strict=True):
                cls.rows.setdefault(key, {})[name] = value
        return QueuedBatch(list(keys), partition_id, tags or [])

    @classmethod
    def kv_clear(cls, keys: Sequence[str], partition_id: str) -> None:
        """Remove rows."""
        del partition_id
        for key in keys:
            cls.rows.pop(key, None)


def _values(column: Any) -> Iterable[Any]:  # noqa: ANN401 - a tensor, or a stack or list of plain values
    """The value of each row."""
    if isinstance(column, Tensor):
        return column.unbind()
    values: Iterable[Any] = column.tolist() if hasattr(column, "tolist") else list(column)
    return values


def cut(column: Tensor, lengths: Tensor) -> list[Tensor]:
    """The ``[B, T]`` tokens of each row, without its padding."""
    return [row[:n].clone() for row, n in zip(column, lengths.tolist(), strict=True)]


def padded(rows: Sequence[Tensor], width: int) -> Tensor:
    """``[B, width]`` of rows of tokens, with 0 after their ends."""
    return torch.stack([pad(row, (0, width - len(row))) for row in rows])


@remembered
def takes_ages(trainer: type) -> bool:
    """Whether a trainer takes a batch from the replay buffer together with the metrics of its age."""
    sources = (inspect.getsource(kind) for kind in trainer.__mro__[:-1])
    return any(re.search(r"batch, \w+ = self\.replay_buffer\.sample\(", source) for source in sources)
