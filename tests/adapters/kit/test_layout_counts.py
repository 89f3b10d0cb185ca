"""The counts follow the layout: seven rows in two micro-batches have three rows each, rounded down."""

import torch

from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCH_ROWS, MICRO_BATCHES
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.codec import Inputs
from rl_sentinel.core.layout import Layout


def test_counts() -> None:
    inputs = Inputs(batch_of(torch.ones(7, 1, dtype=torch.bool)), layout=Layout(micro_batches=2))
    assert (MICRO_BATCHES.put(inputs), MICRO_BATCH_ROWS.put(inputs)) == (2, 3)
    assert MICRO_BATCHES.axes == MICRO_BATCH_ROWS.axes == {"micro_batches"}
