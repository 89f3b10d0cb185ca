"""GRP003 ragged-group-misgrouped: groups of unequal sizes are compared with the wrong rows.

What it says:
    Removing a response from one group changes nothing for the other groups, though the groups then have unequal
    sizes; or the boundary refuses groups of unequal sizes.

Why it matters:
    Filters, aborted requests and packed batches leave groups of unequal sizes. Code that finds groups by position,
    such as ``rewards.view(-1, group_size)``, then compares responses of different prompts.

A boundary that breaks it:
    >>> import torch
    >>> reward, size = torch.tensor([0.0, 0.0, 1.0, 1.0]), 2
    >>> (reward.view(-1, size) - reward.view(-1, size).mean(1, keepdim=True)).flatten().tolist()
    [0.0, 0.0, 0.0, 0.0]
    >>> fewer = torch.cat([reward[1:], reward[3:]])  # groups of one and three responses
    >>> (fewer.view(-1, size) - fewer.view(-1, size).mean(1, keepdim=True)).flatten().tolist()
    [-0.5, 0.5, 0.0, 0.0]

How to fix it:
    Group by the prompt's label instead of ``view(-1, group_size)``: ``rl_sentinel.signal.groups.centered``. Or
    refuse groups of unequal sizes with a message.

Where it does not apply:
    Boundaries that do not claim the scope group, or that read no group. Trajectories of several rows. Outputs with the
    scope batch, and numbers for the whole batch.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.batch import take_rows
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Change, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import at_rows, magnitude, same_rows
from rl_sentinel.search.preconditions import distinct, groups_recognizable, repeats_trajectory


def _applies(boundary: Boundary) -> str:
    if value_of(boundary.claims.scope) != "group":
        return "the boundary's claimed scope is not the group"
    return "" if "group" in boundary.reads else "the boundary reads no group"


def _vary(case: Case, variant: int) -> Case | None:
    """Choose the row to remove: the first or the last one of the first group with several rows."""
    batch = case.batch
    if len(distinct(batch.group)) < 2 or repeats_trajectory(batch):
        return None
    for label in dict.fromkeys(batch.group.tolist()):
        rows = torch.nonzero(batch.group == label).flatten().tolist()
        if len(rows) > 1:
            return with_draw(case, variant=variant, row=rows[-variant])
    return None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    row, batch, boundary = int(case.draw["row"] or 0), case.batch, ask.boundary
    if not groups_recognizable(boundary, batch):
        return
    stay = torch.nonzero(torch.arange(batch.rows, device=batch.device) != row).squeeze(1)
    smaller = take_rows(batch, stay)
    wide = [n for n, output in boundary.outputs.items() if output.scope == "batch" or output.axes == ""]
    before, after = at_rows(boundary, ask(case), stay), ask(with_batch(case, smaller))
    yield from same_rows(
        boundary,
        smaller,
        before,
        after,
        rows=smaller.live & (smaller.group != batch.group[row]),
        change=Change(f"removing row {row}"),
        reason=f"row {row} belongs to another group",
        scale=magnitude(batch, boundary.reads),
        skip=wide,
    )


LAW = Law(
    code="GRP003",
    name="ragged-group-misgrouped",
    stages=frozenset({"reward", "normalize", "correct", "advantage"}),
    claims=("grouping", "scope"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=2,
    shows_with="GRP001",
)
