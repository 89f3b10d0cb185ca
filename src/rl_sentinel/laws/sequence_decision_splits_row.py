"""SCP001 sequence-decision-splits-row: a per-sequence weight or decision differs between tokens of one row.

What it says:
    A weight or a keep-decision that is claimed to be taken per sequence is one value over the row's
    trained tokens.

Why it matters:
    A sequence is rejected because, as a whole, it is too far from the sampler. A test per token keeps only part of it:
    a sequence that was never sampled and that no theory covers.

A boundary that breaks it:
    >>> import torch
    >>> log_ratio, advantage = torch.tensor([[0.5, 0.5]]), torch.tensor([[-1.0, 1.0]])
    >>> far = log_ratio.mean(1, keepdim=True) > 0.1
    >>> (~(far & (advantage < 0))).tolist()
    [[False, True]]
    >>> (~(far & (advantage.sum(1, keepdim=True) <= 0))).expand(1, 2).tolist()
    [[False, False]]

How to fix it:
    Reduce log-ratios per row before the comparison, and spread the decision over the row:
    ``rl_sentinel.signal.correction.rejection.rows_kept``,
    ``rl_sentinel.signal.correction.weights.sequence_weights``.

Where it does not apply:
    Outputs whose claimed scope is not the sequence, or that have no token axis to be split on.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import magnitude, one_value_in_row


def _per_sequence(boundary: Boundary) -> list[str]:
    return [n for n, out in boundary.outputs.items() if out.scope == "sequence" and out.axes == "B T"]


def _applies(boundary: Boundary) -> str:
    return "" if _per_sequence(boundary) else "the boundary claims no output per token of sequence scope"


def _vary(case: Case, variant: int) -> Case | None:
    long = bool((case.batch.mask.sum(dim=1) > 1).any())
    return with_draw(case, variant=variant) if long else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    seen = ask(case)
    scale = magnitude(case.batch, ask.boundary.reads)
    for name in _per_sequence(ask.boundary):
        yield one_value_in_row(name, seen.values[name], case.batch, scale)


LAW = Law(
    code="SCP001",
    name="sequence-decision-splits-row",
    stages=frozenset({"correct", "advantage", "policy-loss", "metric"}),
    applies=_applies,
    vary=_vary,
    expect=_expect,
)
