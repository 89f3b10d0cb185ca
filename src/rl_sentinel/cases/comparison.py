"""Two observations side by side: the relations that say which outputs must not have moved."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from rl_sentinel.cases.preconditions import first_trained
from rl_sentinel.core.batch import COLUMNS, Batch
from rl_sentinel.core.boundary import Boundary, Output, Stage
from rl_sentinel.core.observation import Observation, Relation

#: The stages that hand back tensors of the signal, and the numbers that are logged of it.
SIGNAL_STAGES: frozenset[Stage] = frozenset(
    {
        "reward",
        "normalise",
        "kl",
        "correct",
        "advantage",
        "policy-loss",
        "value-loss",
        "aggregate",
        "metric",
    }
)


def magnitude(batch: Batch, reads: Iterable[str]) -> float:
    """Largest finite magnitude among the signal columns that are read."""
    return _magnitude(batch, frozenset(reads))


@lru_cache(maxsize=512)
def _magnitude(batch: Batch, reads: frozenset[str]) -> float:
    """Kept by the batch itself, since a law asks for it once for each of the others."""
    signals = [getattr(batch, n).flatten() for n in reads if COLUMNS[n]["role"] == "signal"]
    if not signals:
        return 0.0
    return torch.cat(signals).abs().nan_to_num(0.0, 0.0, 0.0).max().item()


def finite_only(relation: Relation) -> Relation:
    """The relation without the places where the observation overflowed, which is another law's business."""
    finite = relation.observed.isfinite()
    return replace(relation, where=finite if relation.where is None else relation.where & finite)


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


def same_rows(  # noqa: PLR0913 - a comparison has these parts
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


def cells(where: Tensor, like: Tensor) -> Tensor:
    """``where`` (``[B]`` or ``[B, T]``) over the trailing axes of ``like``."""
    return where.reshape(*where.shape, *[1] * (like.dim() - where.dim())).expand(like.shape)


def slopes(boundary: Boundary) -> tuple[str, ...]:
    """The columns to which a gradient can be asked: none where there is no loss."""
    wanted = ("logprob", "value") if boundary.stage == "value-loss" else ("logprob",)
    return tuple(n for n in wanted if n in boundary.reads) if "loss" in boundary.outputs else ()


def advantages(boundary: Boundary) -> tuple[str, ...]:
    """The outputs per row or token that are advantages; when normalising, all outputs of these axes."""
    return tuple(
        name
        for name, output in boundary.outputs.items()
        if output.axes in ("B", "B T") and ("advantage" in (name, output.quantity) or boundary.stage == "normalise")
    )


def over_all(boundary: Boundary) -> tuple[str, ...]:
    """The outputs that are declared over all rows and tokens, trained or not."""
    return tuple(name for name, output in boundary.outputs.items() if output.over == "all")


def same_tokens(  # noqa: PLR0913 - a comparison has these parts
    boundary: Boundary,
    batch: Batch,
    before: Observation,
    after: Observation,
    *,
    story: str,
    scale: float,
    numbers: bool = True,
    skip: Iterable[str] = (),
) -> Iterator[Relation]:
    """As :func:`same_rows` on the live rows, with gradients compared at trained tokens only."""
    live = batch.live
    bare, bent = replace(before, gradients={}), replace(after, gradients={})
    yield from same_rows(boundary, batch, bare, bent, rows=live, story=story, scale=scale, numbers=numbers, skip=skip)
    for column, gradient in before.gradients.items():
        where = cells(batch.mask, gradient)
        yield Relation(f"gradient of {column}", gradient, after.gradients[column], where, scale, story=story)


def _mapped(boundary: Boundary, seen: Observation, axis: str, cut: Callable[[Tensor], Tensor]) -> Observation:
    values = {n: cut(v) if axis in boundary.outputs[n].axes.split() else v for n, v in seen.values.items()}
    return replace(seen, values=values, gradients={n: cut(g) for n, g in seen.gradients.items()})


def at_rows(boundary: Boundary, seen: Observation, index: Tensor) -> Observation:
    """What was seen, at the rows ``index`` and in that order; numbers for the whole batch stay."""
    return _mapped(boundary, seen, "B", lambda x: x[index])


def at_first_positions(boundary: Boundary, seen: Observation, width: int) -> Observation:
    """What was seen, at the first ``width`` response positions."""
    return _mapped(boundary, seen, "T", lambda x: x[:, :width])


def one_value_in_row(key: str, value: Tensor, batch: Batch, *, story: str, scale: float) -> Relation:
    """The relation that a ``[B, T]`` output is one value over each row's trained tokens."""
    first = value.gather(1, first_trained(batch).unsqueeze(1)).expand(value.shape)
    return Relation(key, first, value, batch.mask, scale, story=story)
