"""SPL003 doubled-batch-changes-mean: a mean changes when every row is repeated.

What it says:
    A mean does not change when every row appears twice.

Why it matters:
    A "mean" with a fixed denominator, a wrong count, or two divisions scales the learning rate with the batch size.
    Runs with different batch sizes cannot be compared.

A boundary that breaks it:
    >>> import torch
    >>> tokens, configured_rows = torch.tensor([1.0, 3.0]), 2
    >>> tokens.sum().item() / configured_rows, tokens.repeat(2).sum().item() / configured_rows
    (2.0, 4.0)
    >>> tokens.mean().item(), tokens.repeat(2).mean().item()
    (2.0, 2.0)

How to fix it:
    Divide the sum by the count of what was summed, once. ``rl_sentinel.signal.reduce.Aggregation`` takes the
    denominator as an argument, so it can be read in one place.

Where it does not apply:
    Boundaries that neither claim a mean nor declare the population of a number. Sums, counts and
    deviations, which may change.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.expectations import Change, Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import magnitude
from rl_sentinel.search.transforms import doubled

#: Last words of quantities that declare a population but are not means.
OTHERS = frozenset({"std", "sum", "count", "total", "quantile", "percentile"})


def _mean(boundary: Boundary, output: Output) -> bool:
    declared = boundary.claims.mean is not None or output.over != ""
    return output.axes == "" and declared and output.quantity.rpartition(".")[2] not in OTHERS


def _applies(boundary: Boundary) -> str:
    means = any(_mean(boundary, output) for output in boundary.outputs.values())
    return "" if means else "the boundary claims no mean, and no number declares its population"


def _vary(case: Case, variant: int) -> Case | None:
    return with_draw(case, variant=variant) if bool(case.batch.live.any()) else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    before, after = ask(case).values, ask(with_batch(case, doubled(case.batch))).values
    scale, rows = magnitude(case.batch, ask.boundary.reads), case.batch.rows
    change = Change(f"repeating {'its only row' if rows == 1 else f'all {rows} rows'}")
    for name, output in ask.boundary.outputs.items():
        if _mean(ask.boundary, output):
            reason = "repeating a batch must not change its mean"
            yield Equal(name, before[name], after[name], None, scale, change=change, reason=reason)


LAW = Law(
    code="SPL003",
    name="doubled-batch-changes-mean",
    stages=frozenset({"policy-loss", "value-loss", "aggregate", "metric"}),
    claims=("mean",),
    applies=_applies,
    vary=_vary,
    expect=_expect,
)
