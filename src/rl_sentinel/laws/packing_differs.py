"""PAD002 packing-differs: packing a sequence with others changes its results.

What it says:
    A sequence gives the same results whether it is packed with others or alone: the same log-prob, entropy, mask and
    weight at each of its tokens, for any sequences before and after it, and any number of packs.

Why it matters:
    Sequences are packed end to end to save padding. A boundary that is one token off, positions that go on from the
    sequence before, or a cut that counts padding, give tokens the numbers of their neighbors. Which tokens are wrong
    depends on the rest of the batch, so nothing looks wrong on average.

A boundary that breaks it:
    >>> lengths, packed = [2, 3], [0.1, 0.2, 0.3, 0.4, 0.5]
    >>> start = lengths[0] - 1  # one token too early: the last token of the first sequence
    >>> packed[start : start + lengths[1]]
    [0.2, 0.3, 0.4]
    >>> alone = [0.3, 0.4, 0.5]
    >>> packed[start : start + lengths[1]] == alone
    False

How to fix it:
    Reset position ids and the attention at each boundary (``cu_seqlens``), and cut the result at the same
    boundaries: ``rl_sentinel.signal.segments.packed`` and ``rl_sentinel.signal.segments.padded`` are inverse to
    each other.

Where it does not apply:
    Boundaries that do not claim to pack sequences (``packs``), or that give no number per row or token. Batches of one
    row.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator, Mapping

import torch

from rl_sentinel.core.batch import take_rows
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw, with_layout
from rl_sentinel.core.errors import NotApplicable, Refused
from rl_sentinel.core.expectations import Change, Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import magnitude


def _columns_read(boundary: Boundary) -> list[str]:
    return [name for name, output in boundary.outputs.items() if output.axes in ("B", "B T")]


def _applies(boundary: Boundary) -> str:
    if not boundary.claims.packs:
        return "the boundary does not claim to pack sequences"
    return "" if _columns_read(boundary) else "the boundary gives no number per row or token"


def _packs(boundary: Boundary, rows: int) -> list[int]:
    """Numbers of packs to try: one for all rows and, if the boundary splits the rows, two."""
    return [1, 2] if "micro_batches" in boundary.axes and rows > 1 else [1]


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    batch, scale = case.batch, magnitude(case.batch, ask.boundary.reads)
    packed = {n: ask(with_layout(case, micro_batches=n)).values for n in _packs(ask.boundary, batch.rows)}
    for row in range(batch.rows):
        index = torch.tensor([row], device=batch.device)
        try:
            alone = ask(with_batch(case, take_rows(batch, index))).values
        except (NotApplicable, Refused):
            continue  # this sequence cannot be packed alone
        where = batch.valid & (torch.arange(batch.rows, device=batch.device) == row).unsqueeze(1)
        for parts, values in packed.items():
            change = Change(f"packing row {row} with {'all' if parts == 1 else 'some of the'} other rows")
            yield from _same(ask.boundary, values, alone, row, where, change, scale)


def _same(  # noqa: PLR0913 - what a comparison is made of
    boundary: Boundary,
    packed: Mapping[str, torch.Tensor],
    alone: Mapping[str, torch.Tensor],
    row: int,
    where: torch.Tensor,
    change: Change,
    scale: float,
) -> Iterator[Equal]:
    for name in _columns_read(boundary):
        expected = packed[name].clone()
        if boundary.outputs[name].axes == "B":
            expected[row] = alone[name][0]
        else:
            expected[row, : alone[name].shape[1]] = alone[name][0]
        place = where if packed[name].dim() > 1 else where.any(1)
        reason = "packing must not change the numbers of a sequence"
        yield Equal(name, expected, packed[name], place, scale, change=change, reason=reason)


LAW = Law(
    code="PAD002",
    name="packing-differs",
    stages=frozenset({"batch", "kl", "correct", "advantage"}),
    claims=("packs",),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant) if case.batch.rows > 1 else None,
    expect=_expect,
)
