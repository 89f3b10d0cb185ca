"""MSK005 dead-row-in-declared-mean.

What it says:
    A number that is declared over live rows or trained tokens does not change when the rows without
    a trained token are taken out.

Why it matters:
    A dead row in the denominator shrinks the loss by as much as was rejected, so the step size
    follows the rejection rate; in a metric it hides what happens to the rows that train.

A boundary that breaks it:
    >>> import torch
    >>> loss, live = torch.tensor([4.0, 0.0]), torch.tensor([True, False])
    >>> (loss * live).mean().item(), loss[live].mean().item()
    (2.0, 4.0)

Where it does not apply:
    Boundaries that declare no number over live rows. A denominator that is claimed to count every
    sampled response is a choice, and declared as such.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from rl_sentinel.cases.comparison import magnitude
from rl_sentinel.cases.preconditions import repeats_trajectory
from rl_sentinel.cases.transforms import without_rows
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Relation


def _declared(boundary: Boundary) -> list[str]:
    return [name for name, out in boundary.outputs.items() if out.over == "live" and out.axes == ""]


def _applies(boundary: Boundary) -> str:
    if "mask" not in boundary.reads:
        return "it reads no mask"
    return "" if _declared(boundary) else "it declares no number over live rows"


def _vary(case: Case, variant: int) -> Case | None:
    live = case.batch.live
    mixed = bool(live.any()) and not bool(live.all()) and not repeats_trajectory(case.batch)
    return with_draw(case, variant=variant) if mixed else None


def _relate(ask: Ask, case: Case) -> Iterator[Relation]:
    dead = ~case.batch.live
    without = ask(with_batch(case, without_rows(case.batch, dead))).values
    kept = ask(case).values
    story = f"{int(dead.sum())} of {case.batch.rows} rows have no trained token; they were taken out"
    scale = magnitude(case.batch, ask.boundary.reads)
    for name in _declared(ask.boundary):
        yield Relation(name, without[name], kept[name], scale=scale, story=story)


LAW = Law(
    code="MSK005",
    name="dead-row-in-declared-mean",
    stages=frozenset({"kl", "correct", "policy-loss", "value-loss", "aggregate", "metric"}),
    applies=_applies,
    vary=_vary,
    relate=_relate,
)
