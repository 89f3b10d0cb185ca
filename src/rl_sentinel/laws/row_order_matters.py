"""PRM001 row-order-matters: the order of the rows changes a result.

What it says:
    Reordering the rows permutes the outputs in the same way, and changes no number for the whole batch. Adjacent rows
    of a group stay adjacent, and so do the rows of a claimed pair.

Why it matters:
    The order in which a sampler returns responses is random. A signal that depends on it is noisy, or biased towards
    the first responses.

A boundary that breaks it:
    >>> import torch
    >>> reward = torch.tensor([1.0, 0.0, 5.0])
    >>> (reward - reward[0]).tolist(), (reward.flip(0) - reward.flip(0)[0]).flip(0).tolist()
    ([0.0, -1.0, 4.0], [-4.0, -5.0, 0.0])
    >>> (reward - reward.mean()).tolist() == (reward.flip(0) - reward.flip(0).mean()).flip(0).tolist()
    True

How to fix it:
    Find partners by label, not by index, and reduce over all rows at once. ``rl_sentinel.signal.groups`` takes
    rows in any order.

Where it does not apply:
    Batches of one row, and those in which a trajectory has several rows, whose order matters;
    boundaries that claim that the order counts (they draw rows or tokens at random).

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from rl_sentinel.core.batch import take_rows
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.expectations import Change, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import SIGNAL_STAGES, at_rows, magnitude, same_tokens, slopes
from rl_sentinel.search.preconditions import groups_recognizable, repeats_trajectory

#: What is done to the rows, one per variant.
ORDERS = ("reversing all rows", "swapping the first two rows of a group")


def _order(group: Tensor, variant: int) -> Tensor | None:
    """A permutation after which adjacent siblings are still adjacent, or None if no such permutation exists."""
    order = torch.arange(len(group), device=group.device)
    if variant == 0:
        return order.flip(0) if len(group) > 1 else None
    pairs = torch.nonzero(group[1:] == group[:-1]).flatten().tolist()
    if pairs:
        order[pairs[0]], order[pairs[0] + 1] = pairs[0] + 1, pairs[0]
    return order if pairs else None


def _order_of_pairs(group: Tensor, variant: int) -> Tensor | None:
    """A permutation that keeps the two rows of each pair together, or None if no such permutation exists."""
    pairs = torch.arange(len(group), device=group.device).unfold(0, 2, 2)
    if len(group) % 2 or len(pairs) < 2:
        return None
    return (pairs.flip(0) if variant == 0 else torch.cat([pairs[1:], pairs[:1]])).flatten()


def _vary(case: Case, variant: int) -> Case | None:
    batch = case.batch
    fit = bool(batch.live.any()) and not repeats_trajectory(batch)
    return with_draw(case, variant=variant) if fit and _order(batch.group, variant) is not None else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    variant, batch, boundary = int(case.draw["variant"] or 0), case.batch, ask.boundary
    paired = boundary.claims.pairing is not None
    order = _order_of_pairs(batch.group, variant) if paired else _order(batch.group, variant)
    if order is None or not groups_recognizable(boundary, batch):
        return
    before = ask(case, gradients=slopes(boundary))
    after = ask(with_batch(case, take_rows(batch, order)), gradients=slopes(boundary))
    after = at_rows(boundary, after, torch.argsort(order))
    scale = magnitude(batch, boundary.reads)
    reason = "the order of rows must have no influence"
    change = Change(("reversing the pairs", "moving the first pair to the end")[variant] if paired else ORDERS[variant])
    yield from same_tokens(boundary, batch, before, after, change=change, reason=reason, scale=scale)


def _applies(boundary: Boundary) -> str:
    return "the boundary claims that the order of rows counts" if boundary.claims.row_order else ""


LAW = Law(
    code="PRM001",
    name="row-order-matters",
    stages=SIGNAL_STAGES,
    claims=("grouping", "pairing", "row_order"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=len(ORDERS),
)
