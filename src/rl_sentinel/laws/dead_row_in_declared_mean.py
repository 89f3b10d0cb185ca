"""MSK005 dead-row-in-declared-mean: a mean over live rows also counts rows without a trained token.

What it says:
    A number that is declared over live rows or trained tokens does not change when rows without a trained token are
    removed.

Why it matters:
    A dead row in the denominator makes the loss smaller, so the step size depends on the rejection rate; in a metric it
    hides changes of the trained rows.

A boundary that breaks it:
    >>> import torch
    >>> loss, live = torch.tensor([4.0, 0.0]), torch.tensor([True, False])
    >>> (loss * live).mean().item(), loss[live].mean().item()
    (2.0, 4.0)

How to fix it:
    Divide by the number of live rows, or of trained tokens, of the whole mini-batch:
    ``rl_sentinel.signal.minibatches.aggregation`` counts them once, ``rl_sentinel.signal.reduce.aggregate``
    uses the count. For a metric use ``rl_sentinel.signal.metrics.statistics``.

Where it does not apply:
    Boundaries that read no mask, or declare no number over live rows. Batches in which a trajectory has several rows. A
    denominator that is claimed to count every sampled response is a choice, and declared as such.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.expectations import Change, Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import magnitude, not_trained
from rl_sentinel.search.preconditions import repeats_trajectory
from rl_sentinel.search.transforms import without_rows


def _declared(boundary: Boundary) -> list[str]:
    return [name for name, out in boundary.outputs.items() if out.over == "live" and out.axes == ""]


def _applies(boundary: Boundary) -> str:
    if "mask" not in boundary.reads:
        return "the boundary reads no mask"
    return "" if _declared(boundary) else "the boundary declares no number over live rows"


def _vary(case: Case, variant: int) -> Case | None:
    live = case.batch.live
    mixed = bool(live.any()) and not bool(live.all()) and not repeats_trajectory(case.batch)
    return with_draw(case, variant=variant) if mixed else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    dead = torch.nonzero(~case.batch.live).flatten().tolist()
    without = ask(with_batch(case, without_rows(case.batch, ~case.batch.live))).values
    kept = ask(case).values
    reason, change = f"{not_trained(dead)}", Change(f"keeping {'it' if len(dead) == 1 else 'them'} in the batch")
    scale = magnitude(case.batch, ask.boundary.reads)
    for name in _declared(ask.boundary):
        yield Equal(name, without[name], kept[name], scale=scale, change=change, reason=reason)


LAW = Law(
    code="MSK005",
    name="dead-row-in-declared-mean",
    stages=frozenset({"kl", "correct", "policy-loss", "value-loss", "aggregate", "metric"}),
    applies=_applies,
    vary=_vary,
    expect=_expect,
)
