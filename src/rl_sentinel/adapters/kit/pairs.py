"""Pairs of a preferred and a rejected response: rows 2i and 2i + 1 of a batch."""

import torch

from rl_sentinel.core.batch import Batch, take_rows, with_columns
from rl_sentinel.core.codec import Inputs


def rows_are_pairs(inputs: Inputs) -> str:
    """The reason why the rows are not pairs; empty if they are.

    All micro-batches need the same even number of rows.
    """
    rows, parts = inputs.batch.rows, 2 * inputs.layout.micro_batches
    return "" if rows and rows % parts == 0 else "the rows of a micro-batch are not pairs of responses"


def even_rows(batch: Batch) -> Batch:
    """Drop the last row if the number of rows is odd; a single row is kept."""
    odd = batch.rows > 1 and batch.rows % 2
    return take_rows(batch, torch.arange(batch.rows - 1)) if odd else batch


def trained_rows(batch: Batch) -> Batch:
    """Train all tokens of a row that has no trained token."""
    if bool(batch.live.all()):
        return batch
    return with_columns(batch, mask=torch.where(batch.live.unsqueeze(1), batch.mask, batch.valid))


def trained_pairs(batch: Batch) -> Batch:
    """Drop an odd last row unless it is the only row, and train all tokens of each row that has no trained token."""
    return trained_rows(even_rows(batch))
