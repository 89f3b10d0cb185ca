"""DAT001 columns-out-of-step: the columns of an assembled row belong to different samples.

What it says:
    In a batch that is assembled for training, all columns of a row belong to one sample: its tokens, log-probs, weights
    and masks, however rows were filtered, shuffled or cut before. A sample that lacks a part, such as the log-prob of a
    token or a step of its trajectory, is refused or does not train.

Why it matters:
    A filter that keeps some rows, or a shuffle, has to be applied to every column. If one column is forgotten, each
    token has the log-prob of another response: ratios are noise, and the loss still falls. Padding fills the place of a
    log-prob that is missing, so that a token trains as if its probability were 1, or has the log-prob of its neighbor.

A boundary that breaks it:
    >>> tokens, logprobs, kept = ["a", "b", "c"], [-0.1, -0.2, -0.3], [2, 0]
    >>> list(zip([tokens[row] for row in kept], logprobs))
    [('c', -0.1), ('a', -0.2)]

How to fix it:
    Compute the kept or shuffled row indices once, and index every column with them. Assemble a batch in one
    place: ``rl_sentinel.signal.rollout.laid_out`` makes all columns from the same steps and refuses lengths
    that differ.

Where it does not apply:
    Boundaries that report neither how many columns of a row belong to another sample (an output of the quantity
    ``columns_of_others``) nor whether a sample trains that lacks a part (``incomplete``).

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator, Mapping

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask

#: Quantity -> the reason why it must be 0: the number of columns of a row that belong to another sample, and the
#: number of parts that a row lacks although it trains.
QUANTITIES: Mapping[str, str] = {
    "columns_of_others": "all columns of a row must belong to one sample",
    "incomplete": "a row that lacks a part must be refused, or must not train",
}


def _counts(boundary: Boundary) -> dict[str, str]:
    """Output -> the reason why it must be 0."""
    counted = {name: output for name, output in boundary.outputs.items() if output.axes == "B"}
    return {name: QUANTITIES[o.quantity] for name, o in counted.items() if o.quantity in QUANTITIES}


def _applies(boundary: Boundary) -> str:
    return "" if _counts(boundary) else "the boundary does not report which sample each column of a row belongs to"


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    seen = ask(case).values
    for name, reason in _counts(ask.boundary).items():
        yield Equal(name, torch.zeros_like(seen[name]), seen[name], None, tolerance=0.0, reason=reason)


LAW = Law(
    code="DAT001",
    name="columns-out-of-step",
    stages=frozenset({"batch"}),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant) if case.batch.rows > 1 else None,
    expect=_expect,
)
