"""Trace the rows of a ``DataProto``: the columns of each row after its rows were moved."""

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

#: The tensor that numbers the rows.
ROW = "row"


def _row_numbers(inputs: Inputs) -> Tensor:
    return torch.arange(inputs.batch.rows)


def numbered_data(target: Target, **more: Codec) -> Object:
    """The trainer's batch whose rows are numbered, with the log-probs that it has computed of them."""
    return trainer_data(target, "", old_log_probs=Column("old_logprob"), **{ROW: Derived(_row_numbers)}, **more)


def by_row(batch: Any, rows: int, times: int = 1) -> dict[str, Any]:  # noqa: ANN401 - a DataProto
    """The columns of each row at its first place, and how often it is there, by how often it should be (``times``)."""
    order = batch.batch[ROW].tolist()
    place = [order.index(row) if row in order else 0 for row in range(rows)]
    uids = batch.non_tensor_batch["uid"].tolist()
    return {
        "logprobs": batch.batch["old_log_probs"][place],
        "responses": batch.batch["responses"][place],
        "uids": torch.tensor([float(str(uids[at]).rpartition("-")[2]) for at in place]),
        "uses": torch.tensor([order.count(row) / times for row in range(rows)]),
        "rows": torch.tensor(len(order) / times),
    }


def in_order(batch: Any, rows: int) -> dict[str, Any]:  # noqa: ANN401 - a DataProto
    """The columns of each row at the place where it was; how often it is there."""
    order = batch.batch[ROW].tolist()
    found = by_row(batch, rows)
    if len(order) != rows:
        return found
    uids = batch.non_tensor_batch["uid"].tolist()
    return found | {
        "logprobs": batch.batch["old_log_probs"],
        "responses": batch.batch["responses"],
        "uids": torch.tensor([float(str(uid).rpartition("-")[2]) for uid in uids]),
    }


def row_outputs(made: Use) -> Mapping[str, Output]:
    """What a boundary reports of the answers of the two functions above."""
    form: Form = PerRow()
    return {
        "old_logprob": Output("B T", "nats", "old_logprob", at=made["logprobs"], form=Padded()),
        "uid": Output("B", "", "group", at=made["uids"], form=form),
        "uses": Output("B", "", "uses", at=made["uses"], form=form),
        "token": Output("B T", "", "token", at=made["responses"], form=Padded()),
        "rows": Output("", "", "rows", at=made["rows"]),
    }
