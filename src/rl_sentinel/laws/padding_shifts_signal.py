"""PAD001 padding-shifts-signal: more padding changes the results of response tokens.

What it says:
    More columns of padding at the right change nothing at the positions that were there before:
    no output, and no gradient of the loss.

Why it matters:
    The width of a batch is set by its longest response, so the signal of a row would depend on the other rows of its
    batch.

A boundary that breaks it:
    >>> import torch
    >>> loss, mask = torch.tensor([[2.0, 2.0]]), torch.tensor([[1.0, 1.0]])
    >>> wider = torch.nn.functional.pad(loss, (0, 2)), torch.nn.functional.pad(mask, (0, 2))
    >>> loss.mean().item(), wider[0].mean().item()
    (2.0, 1.0)
    >>> ((wider[0] * wider[1]).sum() / wider[1].sum()).item()
    2.0

How to fix it:
    Take lengths, counts and last positions from the mask, never from ``shape[1]``, and sum trained tokens only:
    ``rl_sentinel.signal.reduce.row_sums``.

Where it does not apply:
    Boundaries that read no mask, whose arguments have no padding, or whose claimed normalizer is the width. Batches
    with a response that never ended, since the full width marks it. Numbers over all tokens, and metrics that declare
    no population.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw, with_layout
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Change, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import SIGNAL_STAGES, beyond_tokens, magnitude, same_tokens, slopes

#: Columns of padding that are added, one per variant.
EXTRA = (1, 3)


def _applies(boundary: Boundary) -> str:
    if "mask" not in boundary.reads:
        return "the boundary reads no mask"
    if "extra" not in boundary.axes:
        return "the boundary's arguments have no padding"
    if set(beyond_tokens(boundary)) == set(boundary.outputs):
        return "the boundary does not declare which rows or tokens its numbers cover"
    return "the boundary's normalizer is the width" if value_of(boundary.claims.normalizer) == "width" else ""


def _vary(case: Case, variant: int) -> Case | None:
    fit = bool(case.batch.scored.all()) and bool(case.batch.live.any())
    return with_draw(case, variant=variant, extra=EXTRA[variant]) if fit else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    boundary, batch, extra = ask.boundary, case.batch, int(case.draw["extra"] or 0)
    before = ask(case, gradients=slopes(boundary))
    after = ask(with_layout(case, extra=extra), gradients=slopes(boundary))
    change = Change(f"adding {extra} position{'s' * (extra > 1)} of padding")
    reason, skip = "padding must have no influence", beyond_tokens(boundary)
    scale = magnitude(batch, boundary.reads)
    yield from same_tokens(boundary, batch, before, after, change=change, reason=reason, scale=scale, skip=skip)


LAW = Law(
    code="PAD001",
    name="padding-shifts-signal",
    stages=SIGNAL_STAGES,
    claims=("normalizer",),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=len(EXTRA),
)
