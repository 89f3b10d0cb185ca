"""SPL002 rank-split-changes-loss: the split over data-parallel ranks changes the loss or its gradient.

What it says:
    Spreading the rows over data-parallel ranks, whose losses and gradients the framework then combines, changes
    neither the loss nor its gradient: one rank, two, or one for each row.

Why it matters:
    A denominator that counts the tokens of one rank, or a mean over ranks of numbers with different denominators,
    makes the update depend on how many GPUs there are and on which rows meet on one of them.

A boundary that breaks it:
    >>> import torch
    >>> tokens = torch.tensor([[1.0, 1.0, 1.0], [4.0, 0.0, 0.0]])
    >>> mask = torch.tensor([[True, True, True], [True, False, False]])
    >>> (tokens * mask).sum().item() / 4
    1.75
    >>> sum((tokens[i] * mask[i]).sum() / mask[i].sum() / 2 for i in range(2)).item()  # mean over two ranks
    2.5

How to fix it:
    Sum the denominator over ranks before dividing, and undo the average that data-parallel training takes of
    gradients: ``rl_sentinel.signal.minibatches.aggregation`` counts over the whole mini-batch.

Where it does not apply:
    Boundaries that do not claim denominators given from outside, or whose adapter cannot spread the rows over ranks.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.row_split import applies_to_split, same_loss_in_parts, several_rows


def _applies(boundary: Boundary) -> str:
    return applies_to_split(boundary, "ranks", "the adapter cannot spread the rows over ranks")


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    yield from same_loss_in_parts(
        ask, case, "ranks", "the denominators count all ranks, so the split must have no effect"
    )


LAW = Law(
    code="SPL002",
    name="rank-split-changes-loss",
    stages=frozenset({"policy-loss", "value-loss", "aggregate"}),
    claims=("aggregation", "algorithm", "denominator", "pairing", "row_order"),
    applies=_applies,
    vary=several_rows,
    expect=_expect,
)
