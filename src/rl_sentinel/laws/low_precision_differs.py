"""DTP001 low-precision-differs.

What it says:
    The same numbers passed as bfloat16 and as float64 give the same outputs, up to the rounding of
    bfloat16: half a unit for each of a few operations and each cell that is summed, relative to the
    largest input, the output, and their product, since an exponential turns the one into a factor of
    the other.

Why it matters:
    Log-probs leave a model in bfloat16. Where they are subtracted, summed or counted in it, long
    rows lose whole tokens: above 256 it has no odd numbers.

A boundary that breaks it:
    >>> import torch
    >>> ones = torch.ones(300)
    >>> total = torch.tensor(0.0, dtype=torch.bfloat16)
    >>> for one in ones.bfloat16():
    ...     total = total + one
    >>> total.item(), ones.sum().item()
    (256.0, 300.0)

Where it does not apply:
    Boundaries that refuse bfloat16 in words. Decisions and fractions of decisions, which may flip
    at their threshold.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.cases.comparison import magnitude, places
from rl_sentinel.core.batch import COLUMNS, Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Relation

#: Operations on the way from a cell to an output that is no sum.
OPERATIONS = 4

#: Largest relative error of rounding once to bfloat16.
UNIT = torch.finfo(torch.bfloat16).eps / 2

_DECISIONS = frozenset({"keep", "clip_fraction", "accepted", "requires_grad"})


def _signals(boundary: Boundary) -> list[str]:
    return sorted(n for n in boundary.reads if COLUMNS[n]["role"] == "signal")


def _judged(output: Output) -> bool:
    return output.quantity not in _DECISIONS


def _applies(boundary: Boundary) -> str:
    if not _signals(boundary):
        return "it reads no signal"
    return "" if any(map(_judged, boundary.outputs.values())) else "it exposes decisions only"


def _cast(batch: Batch, names: list[str], dtype: torch.dtype) -> Batch:
    return with_columns(batch, **{n: getattr(batch, n).bfloat16().to(dtype) for n in names})


def _summed(output: Output, batch: Batch) -> int:
    """How many cells one number of an output may be a sum of: of all rows, or of its row and its siblings."""
    return batch.mask.numel() if output.axes == "" else batch.rows + batch.width


def _relate(ask: Ask, case: Case) -> Iterator[Relation]:
    batch, names = case.batch, _signals(ask.boundary)
    low = ask(with_batch(case, _cast(batch, names, torch.bfloat16))).values
    high = ask(with_batch(case, _cast(batch, names, torch.float64))).values
    for name, output in ask.boundary.outputs.items():
        if not _judged(output):
            continue
        where = places(output, batch, batch.live)
        seen = high[name].double()[where]
        own = seen[seen.isfinite()].abs().max().item() if bool(seen.isfinite().any()) else 0.0
        given = magnitude(batch, ask.boundary.reads)
        allowed = (OPERATIONS + _summed(output, batch)) * UNIT * max(own, given, own * given, 1e-3)
        story = f"{', '.join(names)} passed as bfloat16 and as float64, the same numbers"
        yield Relation(name, high[name], low[name], where, tolerance=allowed, story=story)


LAW = Law(
    code="DTP001",
    name="low-precision-differs",
    stages=frozenset({"advantage", "policy-loss", "kl"}),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    relate=_relate,
    level=lambda _case: "hazard",
)
