"""Compare two observations: expectations that outputs are equal."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from rl_sentinel.core.batch import COLUMNS, Batch
from rl_sentinel.core.boundary import Boundary, Output, Stage
from rl_sentinel.core.expectations import Change, Equal, changed
from rl_sentinel.core.observation import Observation
from rl_sentinel.search.preconditions import first_trained

#: Stages that return tensors of the signal, or metrics of it.
SIGNAL_STAGES: frozenset[Stage] = frozenset(
    {
        "reward",
        "normalize",
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
    """Like :func:`magnitude`, cached by batch, because each law needs the number many times."""
    signals = [getattr(batch, n).flatten() for n in reads if COLUMNS[n]["role"] == "signal"]
    if not signals:
        return 0.0
    return torch.cat(signals).abs().nan_to_num(0.0, 0.0, 0.0).max().item()


def finite_only(equal: Equal) -> Equal:
    """The expectation without positions where the result overflowed, because another law reports an overflow."""
    finite = equal.observed.isfinite()
    return replace(equal, where=finite if equal.where is None else equal.where & finite)


def change_of(column: str, batch: Batch, after: Batch, subject: str) -> Change:
    """The change of one column between two batches of the same shape."""
    return changed(subject, column, getattr(batch, column), getattr(after, column))


def not_trained(rows: Sequence[int]) -> str:
    """The reason of an expectation, such as ``row 1 is not trained``."""
    plural = len(rows) > 1
    return f"row{'s' * plural} {', '.join(map(str, rows))} {'are' if plural else 'is'} not trained"


def tokens_not_trained(tokens: Sequence[Sequence[int]]) -> str:
    """The reason of an expectation, such as ``token 2 of row 0 is not trained``."""
    if len(tokens) > 1:
        return f"{len(tokens)} tokens of the responses are not trained"
    return f"token {tokens[0][1]} of row {tokens[0][0]} is not trained"


def spread(rows: Tensor, like: Tensor) -> Tensor:
    """``rows`` (``[B]`` bool) expanded to the shape of ``like``; a single True if ``like`` is one number per batch."""
    if like.dim() == 0:
        return torch.tensor(data=True, device=like.device)
    return rows.reshape(-1, *[1] * (like.dim() - 1)).expand(like.shape)


def places(output: Output, batch: Batch, rows: Tensor) -> Tensor:
    """The positions at which an output counts: the given rows or, for an output per token, their trained tokens.

    A single True for other outputs.
    """
    if output.axes == "B T":
        return rows.unsqueeze(1) & batch.mask
    return rows if output.axes == "B" else torch.tensor(data=True, device=batch.device)


def same_rows(  # noqa: PLR0913 - a comparison has these parts
    boundary: Boundary,
    batch: Batch,
    before: Observation,
    after: Observation,
    *,
    rows: Tensor,
    change: Change | None,
    reason: str,
    scale: float,
    numbers: bool = True,
    skip: Iterable[str] = (),
) -> Iterator[Equal]:
    """Expectations that all outputs and gradients are equal in two observations, on ``rows`` of ``batch``.

    ``numbers`` includes the outputs that are one number for the whole batch; ``skip`` leaves some
    outputs out.
    """
    for name, output in boundary.outputs.items():
        if name in skip or (output.axes == "" and not numbers) or name not in before.values:
            continue
        where = places(output, batch, rows)
        yield Equal(name, before.values[name], after.values[name], where, scale, change=change, reason=reason)
    for column, gradient in before.gradients.items():
        where = spread(rows, gradient)
        key = f"gradient of {column}"
        yield Equal(key, gradient, after.gradients[column], where, scale, change=change, reason=reason)


def cells(where: Tensor, like: Tensor) -> Tensor:
    """``where`` (``[B]`` or ``[B, T]`` bool) expanded to the shape of ``like``."""
    return where.reshape(*where.shape, *[1] * (like.dim() - where.dim())).expand(like.shape)


def slopes(boundary: Boundary) -> tuple[str, ...]:
    """The columns for which laws compare gradients of the loss; empty without a loss.

    The log-probs, for a value loss also the values, for an aggregation also the logits; each if the boundary reads it.
    """
    more = {"value-loss": ("value",), "aggregate": ("logits",)}  # a divergence is summed from logits
    columns = ("logprob", *more.get(boundary.stage, ()))
    return tuple(n for n in columns if n in boundary.reads) if "loss" in boundary.outputs else ()


def advantages(boundary: Boundary) -> tuple[str, ...]:
    """The outputs per row or token that are advantages; for a normalization, all outputs per row or token."""
    return tuple(
        name
        for name, output in boundary.outputs.items()
        if output.axes in ("B", "B T") and ("advantage" in (name, output.quantity) or boundary.stage == "normalize")
    )


def over_all(boundary: Boundary) -> tuple[str, ...]:
    """The outputs that average or sum over all rows and tokens, trained or not, as the adapter declares."""
    return tuple(name for name, output in boundary.outputs.items() if output.over == "all")


def beyond_tokens(boundary: Boundary) -> tuple[str, ...]:
    """The outputs that may depend on untrained tokens.

    These are outputs declared over all tokens, and metrics that do not declare over which tokens they are computed.
    """
    metrics = boundary.stage == "metric"
    return tuple(n for n, o in boundary.outputs.items() if o.over == "all" or (metrics and not o.over))


def same_tokens(  # noqa: PLR0913 - a comparison has these parts
    boundary: Boundary,
    batch: Batch,
    before: Observation,
    after: Observation,
    *,
    change: Change | None,
    reason: str,
    scale: float,
    numbers: bool = True,
    skip: Iterable[str] = (),
) -> Iterator[Equal]:
    """Like :func:`same_rows` on the live rows, with gradients compared at trained tokens only."""
    live = batch.live
    values_before, values_after = replace(before, gradients={}), replace(after, gradients={})
    yield from same_rows(
        boundary,
        batch,
        values_before,
        values_after,
        rows=live,
        change=change,
        reason=reason,
        scale=scale,
        numbers=numbers,
        skip=skip,
    )
    for column, gradient in before.gradients.items():
        where = cells(batch.mask, gradient)
        key = f"gradient of {column}"
        yield Equal(key, gradient, after.gradients[column], where, scale, change=change, reason=reason)


def at_rows(boundary: Boundary, observation: Observation, index: Tensor) -> Observation:
    """The observation at the rows ``index``, in the order of ``index``; numbers per batch are unchanged."""
    values = {n: v[index] if "B" in boundary.outputs[n].axes.split() else v for n, v in observation.values.items()}
    return replace(observation, values=values, gradients={n: g[index] for n, g in observation.gradients.items()})


def one_value_in_row(name: str, value: Tensor, batch: Batch, scale: float) -> Equal:
    """The expectation that a ``[B, T]`` output has one value at each row's trained tokens."""
    first = value.gather(1, first_trained(batch).unsqueeze(1)).expand(value.shape)
    reason = "all trained tokens of a row must have the same value, that of the first"
    return Equal(name, first, value, batch.mask, scale, reason=reason)
