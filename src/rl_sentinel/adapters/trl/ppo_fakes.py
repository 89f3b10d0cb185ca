"""Fakes for a PPO step in TRL before 0.12: a model that is updated, accelerate, and the collator."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rl_sentinel.adapters.trl.tiny_trainer import PADDING
from rl_sentinel.adapters.trl.token_model import ValueModel


class UpdatedModel:
    """A fake policy: forward passes without gradient use the model before the update; others use the updated model."""

    def __init__(self, before: ValueModel, after: ValueModel) -> None:
        """Store the model before the update and the model after it."""
        self.before, self.after = before, after

    def __call__(self, **inputs: Tensor) -> tuple[Tensor, None, Tensor]:
        """Logits and values."""
        return (self.after if torch.is_grad_enabled() else self.before)(**inputs)

    def train(self) -> None:
        """Do nothing."""

    eval = train


class Accumulation:
    """A fake for accelerate's accelerator and optimizer.

    Losses are divided by the number of micro-batches. ``step`` applies the gradients of all losses since ``zero_grad``
    cleared them; both methods do nothing after a micro-batch that is not the last one.
    """

    num_processes = 1
    is_main_process = True
    device = torch.device("cpu")

    def __init__(self, micro_batches: int) -> None:
        """Store the number of micro-batches over which gradients are accumulated."""
        self.micro_batches, self.count, self.sync_gradients = micro_batches, 0, True
        self.pending: list[Tensor] = []
        self.applied: list[Tensor] = []
        self.param_groups = [{"lr": 0.0}]

    @contextmanager
    def accumulate(self, _model: object) -> Iterator[None]:
        """Count a micro-batch."""
        self.count += 1
        self.sync_gradients = self.count % self.micro_batches == 0
        yield

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss to those that ``step`` will apply."""
        self.pending.append(loss / self.micro_batches)

    def step(self) -> None:
        """Apply the gradients."""
        self.applied += self.pending if self.sync_gradients else []

    def zero_grad(self) -> None:
        """Clear the gradients."""
        if self.sync_gradients:
            self.pending.clear()

    def unwrap_model(self, model: Any) -> Any:  # noqa: ANN401 - a model
        """The model itself."""
        return model


class AttendingModel(ValueModel):
    """A fake model whose values are wrong in a row that attends to padding before its text, or misses a token of it."""

    def __call__(self, input_ids: Tensor, **more: object) -> tuple[Tensor, None, Tensor]:
        """The logits ``[B, S, V]`` and values ``[B, S]``."""
        logits, none, values = ValueModel.__call__(self, input_ids)
        tokens, mask = input_ids != PADDING, more.get("attention_mask")
        attended = mask.bool() if isinstance(mask, Tensor) else torch.ones_like(tokens)
        until_end = tokens.flip(1).cumsum(1).flip(1) > 0
        wrong = ((attended != tokens) & until_end).any(1, keepdim=True)
        return logits, none, values + wrong


def collate(rows: list[Any], side: str = "left") -> Any:  # noqa: ANN401 - of transformers
    """Rows with padding at one side, in the format of transformers' collator. Rows are dicts, or only token ids."""
    rows = [{"input_ids": row} if isinstance(row, Tensor) else row for row in rows]
    longest = max(len(row["input_ids"]) for row in rows)
    missing = {len(row["input_ids"]): longest - len(row["input_ids"]) for row in rows}
    widths = {n: (gap, 0) if side == "left" else (0, gap) for n, gap in missing.items()}
    columns = {n: torch.stack([pad(row[n], widths[len(row[n])]) for row in rows]) for n in rows[0]}
    return importlib.import_module("transformers").BatchEncoding(columns)
