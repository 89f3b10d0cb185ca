"""DAT002 sample-lost-or-repeated: a sample is used less or more often than declared.

What it says:
    Over an epoch, or from a buffer, each sample is used as often as declared: once, or as often as its repetition says.

Why it matters:
    A sampler that drops the end of an epoch, or hands a sample to two workers, trains on another distribution than the
    data has. The number of steps stays as it was, so nothing shows it.

A boundary that breaks it:
    >>> from collections import Counter
    >>> samples, size = ["a", "b", "c"], 2
    >>> drawn = [samples[start : start + size] for start in (0, 2, 0)]  # the second batch is not filled up
    >>> Counter(name for batch in drawn for name in batch)
    Counter({'a': 2, 'b': 2, 'c': 1})

How to fix it:
    Let one sampler deal indices to all workers, carry the rest of a batch over to the next one, and mark a
    sample as used when it is handed out.

Where it does not apply:
    Boundaries that do not report how often each sample is used (an output of the quantity ``uses``, divided by the
    declared number).

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask

#: The quantity: the number of uses of a sample, divided by the declared number.
QUANTITY = "uses"


def _counts(boundary: Boundary) -> list[str]:
    return [name for name, output in boundary.outputs.items() if output.quantity == QUANTITY and output.axes == "B"]


def _applies(boundary: Boundary) -> str:
    return "" if _counts(boundary) else "the boundary does not report how often each sample is used"


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    seen = ask(case).values
    for name in _counts(ask.boundary):
        reason = "each sample must be used as often as declared"
        yield Equal(name, torch.ones_like(seen[name]), seen[name], None, tolerance=0.0, reason=reason)


LAW = Law(
    code="DAT002",
    name="sample-lost-or-repeated",
    stages=frozenset({"batch"}),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
)
