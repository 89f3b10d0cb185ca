"""Doubles for verl: an engine whose model answers from a table, and logged values over micro-batches."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.world import group


class Engine:
    """What ``forward_backward_batch`` asks of its engine; the model answers with given columns at each token.

    ``losses`` has the loss of each micro-batch.
    """

    ulysses_sequence_parallel_size = 1
    scaler = None

    def __init__(self, answers: dict[str, Tensor], lengths: list[int]) -> None:
        """Take ``[B, T]`` answers by name, and the length of each response."""
        self.answers, self.lengths = answers, lengths
        self.losses: list[Tensor] = []

    def get_data_parallel_group(self) -> Any:  # noqa: ANN401 - a process group
        """A group of one process."""
        return group()

    def get_data_parallel_size(self) -> int:
        """One process."""
        return 1

    def _gradient_sync_context(self, **_about: object) -> Any:  # noqa: ANN401 - a context
        return nullcontext()

    def forward_step(self, micro_batch: Any, loss_function: Any, **_about: object) -> tuple[Tensor, dict[str, Any]]:  # noqa: ANN401
        """What the model would answer at the rows of a micro-batch, and the loss of it.

        Rows are a prompt of one token and the response, without padding; position t predicts t + 1.
        """
        zero, rows = torch.zeros(1), micro_batch["row"].tolist()
        given = {
            name: torch.cat([x for row in rows for x in (column[row, : self.lengths[row]], zero)])
            for name, column in self.answers.items()
        }
        loss, logged = loss_function(given, data=micro_batch, dp_group=None)
        self.losses.append(loss.detach())
        return loss, {"loss": loss.detach().item(), "metrics": logged}
