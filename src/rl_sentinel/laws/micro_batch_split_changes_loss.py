"""SPL001 micro-batch-split-changes-loss.

What it says:
    Where the denominators of the whole mini-batch are given to the loss, cutting the rows into
    micro-batches with the target's own splitter changes neither the loss nor its gradient: one
    part, two parts, or one for each row, an all-masked part included.

Why it matters:
    Micro-batches are a matter of memory. If each divides by the tokens that it happens to hold,
    tokens of short responses weigh more than others, and by how much depends on the hardware.

A boundary that breaks it:
    >>> import torch
    >>> tokens = torch.tensor([[1.0, 1.0, 1.0], [4.0, 0.0, 0.0]])
    >>> mask = torch.tensor([[True, True, True], [True, False, False]])
    >>> (tokens * mask).sum().item() / 4
    1.75
    >>> sum((tokens[i] * mask[i]).sum() / mask[i].sum() / 2 for i in range(2)).item()
    2.5

Where it does not apply:
    Boundaries that do not claim denominators given from outside, or whose adapter cannot cut with
    the target's own splitter.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw, with_layout
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Change, Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Observation
from rl_sentinel.search.comparison import magnitude, slopes

#: Why the parts add up to the whole.
REASON = "denominators are those of the whole mini-batch"


def _applies(boundary: Boundary) -> str:
    if value_of(boundary.claims.denominator) != "given":
        return "it does not claim denominators that are given from outside"
    if "micro_batches" not in boundary.axes:
        return "its adapter cannot cut the rows into micro-batches"
    return "" if "loss" in boundary.outputs else "it has no loss"


def _vary(case: Case, variant: int) -> Case | None:
    several = case.batch.rows > 1 and bool(case.batch.live.any())
    return with_draw(case, variant=variant) if several else None


def _cut(ask: Ask, case: Case, parts: int) -> Observation:
    return ask(with_layout(case, micro_batches=parts), gradients=slopes(ask.boundary))


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    batch, whole = case.batch, _cut(ask, case, 1)
    scale = magnitude(batch, ask.boundary.reads)
    for parts in sorted({2, batch.rows}):
        cut = _cut(ask, case, parts)
        change = Change(f"cutting {batch.rows} rows into {parts} micro-batches")
        for column, gradient in whole.gradients.items():
            name = f"gradient of {column}"
            yield Equal(name, gradient, cut.gradients[column], None, scale, change=change, reason=REASON)
        yield Equal("loss", whole.values["loss"], cut.values["loss"], None, scale, change=change, reason=REASON)


LAW = Law(
    code="SPL001",
    name="micro-batch-split-changes-loss",
    stages=frozenset({"policy-loss", "value-loss", "aggregate"}),
    claims=("denominator",),
    applies=_applies,
    vary=_vary,
    expect=_expect,
)
