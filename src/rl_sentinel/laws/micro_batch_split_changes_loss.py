"""SPL001 micro-batch-split-changes-loss: the split into micro-batches changes the loss or its gradient.

What it says:
    Where the denominators of the whole mini-batch are given to the loss, cutting the rows into
    micro-batches with the target's own splitter changes neither the loss nor its gradient: one
    part, two parts, or one for each row, an all-masked part included. The same holds for a loss that is claimed to be a
    mean and counts its own denominators, if all rows have equally many trained tokens.

Why it matters:
    Micro-batches only serve to save memory. If each micro-batch divides by its number of tokens, tokens of short
    responses weigh more than others. How much more depends on the hardware.

A boundary that breaks it:
    >>> import torch
    >>> tokens = torch.tensor([[1.0, 1.0, 1.0], [4.0, 0.0, 0.0]])
    >>> mask = torch.tensor([[True, True, True], [True, False, False]])
    >>> (tokens * mask).sum().item() / 4
    1.75
    >>> sum((tokens[i] * mask[i]).sum() / mask[i].sum() / 2 for i in range(2)).item()
    2.5

How to fix it:
    Count the denominator over the whole mini-batch and pass it to every micro-batch:
    ``rl_sentinel.signal.minibatches.aggregation``, then ``rl_sentinel.signal.reduce.aggregate``. Do not divide
    by the number of micro-batches as well.

Where it does not apply:
    Boundaries that claim neither denominators given from outside nor a mean, or whose adapter cannot cut with the
    target's own splitter. A loss that counts its denominators and selects some of the tokens of its part.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.row_split import applies_to_split, averages, same_loss_in_parts, several_rows


def _applies(boundary: Boundary) -> str:
    if averages(boundary) and "micro_batches" in boundary.axes:
        return ""
    return applies_to_split(boundary, "micro_batches", "the adapter cannot cut the rows into micro-batches")


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    mean = averages(ask.boundary)
    reason = (
        "the mean over equal parts must be that of the whole" if mean else "the denominators count the whole mini-batch"
    )
    yield from same_loss_in_parts(ask, case, "micro_batches", reason)


LAW = Law(
    code="SPL001",
    name="micro-batch-split-changes-loss",
    stages=frozenset({"policy-loss", "value-loss", "aggregate"}),
    claims=("aggregation", "algorithm", "denominator", "pairing", "row_order"),
    applies=_applies,
    vary=several_rows,
    expect=_expect,
)
