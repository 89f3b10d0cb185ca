"""MET003 metric-breaks-a-law: a metric over live rows changes with dead rows or padding.

What it says:
    A metric that is declared over live rows obeys the laws of the signal: moving a column of a row without a trained
    token, or adding padding, does not change the metric.

Why it matters:
    A mean reward that counts rejected rows, or a mean length that grows with the widest row of the
    batch, moves with the batch's composition and not with the policy.

A boundary that breaks it:
    >>> import torch
    >>> kl, mask = torch.tensor([[1.0, 1.0]]), torch.tensor([[True, True]])
    >>> (kl * mask).mean().item()
    1.0
    >>> wide, wider = torch.nn.functional.pad(kl, (0, 2)), torch.nn.functional.pad(mask, (0, 2))
    >>> (wide * wider).mean().item(), ((wide * wider).sum() / wider.sum()).item()
    (0.5, 1.0)

How to fix it:
    Compute the metric over live rows and trained tokens: ``rl_sentinel.signal.metrics.statistics`` takes their
    mask. Or declare the population that it counts, and log the rejected share beside it.

Where it does not apply:
    Boundaries that read no mask. Metrics that declare no population, or all rows. Padding is not judged where the fixed
    width is the claimed normalizer.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.batch import COLUMNS, Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Change, Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import change_of, magnitude, not_trained
from rl_sentinel.search.transforms import moved, padded

#: How far a cell of the dead row is moved, in the unit of its column.
AMOUNTS = (1.0, -100.0)

#: Positions of padding that are added.
EXTRA = 2


def _declared(boundary: Boundary) -> list[str]:
    return [n for n, o in boundary.outputs.items() if o.axes == "" and o.over == "live"]


def _applies(boundary: Boundary) -> str:
    if not _declared(boundary):
        return "the boundary logs no number that is declared over live rows"
    return "" if "mask" in boundary.reads else "the boundary reads no mask"


def _vary(case: Case, variant: int) -> Case | None:
    live = case.batch.live
    possible = bool(live.any()) and (variant == 1 or not bool(live.all()))
    return with_draw(case, variant=variant) if possible else None


def _altered(case: Case, boundary: Boundary) -> Iterator[tuple[Batch, Change, str]]:
    batch = case.batch
    if case.draw["variant"] == 1:
        if value_of(boundary.claims.normalizer) != "width":
            yield padded(batch, EXTRA), Change(f"adding {EXTRA} positions of padding"), "padding must have no influence"
        return
    row = int(torch.nonzero(~batch.live)[0])
    for column in sorted(n for n in boundary.reads if COLUMNS[n]["role"] == "signal"):
        for amount in AMOUNTS:
            there = torch.arange(batch.rows, device=batch.device) == row
            other = moved(batch, column, there, amount)
            yield other, change_of(column, batch, other, f"its {column}"), not_trained([row])


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    before = ask(case).values
    for other, change, reason in _altered(case, ask.boundary):
        after, scale = ask(with_batch(case, other)).values, magnitude(other, ask.boundary.reads)
        for name in _declared(ask.boundary):
            yield Equal(name, before[name], after[name], None, scale, change=change, reason=reason)


LAW = Law(
    code="MET003",
    name="metric-breaks-a-law",
    stages=frozenset({"metric"}),
    claims=("normalizer",),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=2,
)
