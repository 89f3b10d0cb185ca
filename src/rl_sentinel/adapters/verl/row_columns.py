"""Add an index to the rows of a ``DataProto`` before an operation, and read their columns by index after it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.forms import Padded, PerRow
from rl_sentinel.adapters.kit.value_codecs import Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import trainer_data
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.call import Use
from rl_sentinel.core.codec import Codec, Form, Inputs

#: Name of the tensor with the row indices.
ROW = "row"

#: Output -> its key in the batch.
_KEYS: Mapping[str, str] = {"logprobs": "old_log_probs", "responses": "responses"}


def _row_numbers(inputs: Inputs) -> Tensor:
    return torch.arange(inputs.batch.rows)


def numbered_data(target: Target, **more: Codec) -> Object:
    """The trainer's batch with old log-probs and row indices."""
    return trainer_data(target, "", old_log_probs=Column("old_logprob"), **{ROW: Derived(_row_numbers)}, **more)


def columns_by_row(batch: Any, rows: int, times: int = 1) -> dict[str, Any]:  # noqa: ANN401 - a DataProto
    """The columns of each row at its first occurrence, and its number of copies divided by the expected ``times``.

    A missing row has the columns of the first place, or zeros if all rows are missing.
    """
    order = batch.batch[ROW].tolist()
    if not order:
        columns, none = batch.batch, torch.zeros(rows)
        empty = {name: columns[key].new_zeros(rows, columns[key].shape[1]) for name, key in _KEYS.items()}
        return {**empty, "uids": none, "uses": none, "rows": torch.tensor(0.0)}
    places = [order.index(row) if row in order else 0 for row in range(rows)]
    uids = batch.non_tensor_batch["uid"].tolist()
    return {
        **{name: batch.batch[key][places] for name, key in _KEYS.items()},
        "uids": torch.tensor([float(str(uids[at]).rpartition("-")[2]) for at in places]),
        "uses": torch.tensor([order.count(row) / times for row in range(rows)]),
        "rows": torch.tensor(len(order) / times),
    }


def columns_in_order(batch: Any, rows: int) -> dict[str, Any]:  # noqa: ANN401 - a DataProto
    """The columns in their current order, which must be the original one, and the number of copies of each row.

    If the number of rows differs from ``rows``, the columns are those of :func:`columns_by_row`.
    """
    order = batch.batch[ROW].tolist()
    columns = columns_by_row(batch, rows)
    if len(order) != rows:
        return columns
    uids = batch.non_tensor_batch["uid"].tolist()
    return columns | {
        **{name: batch.batch[key] for name, key in _KEYS.items()},
        "uids": torch.tensor([float(str(uid).rpartition("-")[2]) for uid in uids]),
    }


def row_outputs(result: Use) -> Mapping[str, Output]:
    """Outputs that read a result of :func:`columns_by_row` or :func:`columns_in_order`."""
    form: Form = PerRow()
    return {
        "old_logprob": Output("B T", "nats", "old_logprob", at=result["logprobs"], form=Padded()),
        "uid": Output("B", "", "group", at=result["uids"], form=form),
        "uses": Output("B", "", "uses", at=result["uses"], form=form),
        "token": Output("B T", "", "token", at=result["responses"], form=Padded()),
        "rows": Output("", "", "rows", at=result["rows"]),
    }
