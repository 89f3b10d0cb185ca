"""Two observations side by side: the relations that say which outputs must not have moved."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from rl_sentinel.core.batch import COLUMNS, Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.observation import Observation, Relation


def magnitude(batch: Batch, reads: Iterable[str]) -> float:
    """Largest finite magnitude among the signal columns that are read."""
    signals = [getattr(batch, n) for n in reads if COLUMNS[n]["role"] == "signal"]
    finite = [s[s.isfinite()].abs().max().item() for s in signals if s.isfinite().any()]
    return max(finite, default=0.0)


def spread(rows: Tensor, like: Tensor) -> Tensor:
    """``[B]`` bool over the axes of ``like``; a number for the whole batch is one cell."""
    if like.dim() == 0:
        return torch.tensor(data=True)
    return rows.reshape(-1, *[1] * (like.dim() - 1)).expand(like.shape)


def places(output: Output, batch: Batch, rows: Tensor) -> Tensor:
    """Where an output counts: the given rows, and of them the trained tokens."""
    if output.axes == "B T":
        return rows.unsqueeze(1) & batch.mask
    return rows if output.axes == "B" else torch.tensor(data=True)


def same_rows(
    boundary: Boundary,
    batch: Batch,
    before: Observation,
    after: Observation,
    *,
    rows: Tensor,
    story: str,
    scale: float,
    numbers: bool = True,
    skip: Iterable[str] = (),
) -> Iterator[Relation]:
    """Relations saying that no output and no gradient differs on ``rows`` of ``batch``.

    ``numbers`` includes the outputs that are one number for the whole batch; ``skip`` leaves some
    outputs out.
    """
    for name, output in boundary.outputs.items():
        if name in skip or (output.axes == "" and not numbers) or name not in before.values:
            continue
        where = places(output, batch, rows)
        yield Relation(name, before.values[name], after.values[name], where, scale, story=story)
    for column, gradient in before.gradients.items():
        where = spread(rows, gradient)
        key = f"gradient of {column}"
        yield Relation(key, gradient, after.gradients[column], where, scale, story=story)
