"""MET005 metric-depends-on-split: a metric changes with the split into micro-batches or ranks.

What it says:
    A logged number that is declared over the rows of a batch is the same however the rows are cut into
    micro-batches, or spread over ranks: its reduction weights each part by what the part counts.

Why it matters:
    The mean of the means of micro-batches gives a token of a short micro-batch more weight. The curve then
    depends on memory and on the number of GPUs, and two runs cannot be compared.

A boundary that breaks it:
    >>> import torch
    >>> kl, mask = torch.tensor([[3.0, 0.0], [1.0, 1.0]]), torch.tensor([[True, False], [True, True]])
    >>> round((kl * mask).sum().item() / mask.sum().item(), 4)
    1.6667
    >>> sum((kl[i] * mask[i]).sum().item() / mask[i].sum().item() for i in range(2)) / 2
    2.0

How to fix it:
    Return the sum and the count of each part, add both over micro-batches and ranks, and divide once at the
    end.

Where it does not apply:
    Boundaries that do not cut the rows themselves. Numbers that declare no population, and the loss (SPL001).

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import magnitude
from rl_sentinel.search.row_split import Cut, cutting, in_parts, several_rows

#: What the rows are split into, one per variant.
CUTS: tuple[Cut, ...] = ("micro_batches", "ranks")


def _logged(boundary: Boundary) -> list[str]:
    return [n for n, o in boundary.outputs.items() if o.axes == "" and o.over and n != "loss"]


def _applies(boundary: Boundary) -> str:
    if not boundary.axes & set(CUTS):
        return "the boundary does not split the rows"
    return "" if _logged(boundary) else "the boundary logs no number that is declared over rows"


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    cut, batch = CUTS[int(case.draw["variant"] or 0)], case.batch
    if cut not in ask.boundary.axes:
        return
    whole, scale = ask(case).values, magnitude(batch, ask.boundary.reads)
    for parts in sorted({2, batch.rows}):
        after, change = ask(in_parts(case, cut, parts)).values, cutting(case, cut, parts)
        for name in _logged(ask.boundary):
            population = "trained tokens" if ask.boundary.outputs[name].over == "live" else "rows"
            reason = f"a number over all {population} must not depend on the split"
            yield Equal(name, whole[name], after[name], None, scale, change=change, reason=reason)


LAW = Law(
    code="MET005",
    name="metric-depends-on-split",
    stages=frozenset({"metric", "policy-loss", "value-loss", "aggregate", "step"}),
    applies=_applies,
    vary=several_rows,
    expect=_expect,
    level=lambda _case: "contested",
    variants=len(CUTS),
    intended="An unweighted mean is cheap, and accurate for parts of similar size.",
)
