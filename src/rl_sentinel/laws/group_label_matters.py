"""GRP002 group-label-matters: the ids of the groups, or the order of their rows, change a result.

What it says:
    Renaming the groups changes nothing. If rows are grouped by label, interleaving the rows of the groups changes
    nothing either.

Why it matters:
    Prompt ids are arbitrary. Code that uses them as positions, or assumes that siblings are adjacent, compares
    responses to different prompts.

A boundary that breaks it:
    >>> import torch
    >>> reward, group = torch.tensor([1.0, 5.0, 3.0, 7.0]), torch.tensor([0, 1, 0, 1])
    >>> reward.reshape(2, 2).mean(1).repeat_interleave(2).tolist()
    [3.0, 3.0, 5.0, 5.0]
    >>> torch.stack([reward[group == g].mean() for g in group]).tolist()
    [2.0, 6.0, 2.0, 6.0]

How to fix it:
    Group by equal labels, not by neighbors or positions: ``rl_sentinel.signal.groups.group_sums`` and the
    estimators of ``rl_sentinel.signal.advantage`` take any integers in any order.

Where it does not apply:
    Boundaries that read no group. Rows are interleaved only where grouping by id is claimed, and each
    trajectory has one row.

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
from rl_sentinel.search.comparison import at_rows, magnitude, same_tokens, slopes
from rl_sentinel.search.preconditions import distinct, groups_recognizable, repeats_trajectory
from rl_sentinel.search.transforms import interleaved, relabeled

#: Changes of the groups, one per variant.
CHANGES = ("giving the groups other ids", "interleaving the rows of the groups")


def _applies(boundary: Boundary) -> str:
    return "" if "group" in boundary.reads else "the boundary reads no group"


def _vary(case: Case, variant: int) -> Case | None:
    batch = case.batch
    if len(distinct(batch.group)) < 2 or not bool(batch.live.any()):
        return None
    in_order = torch.equal(interleaved(batch.group), torch.arange(batch.rows, device=batch.device))
    if variant == 1 and (in_order or repeats_trajectory(batch)):
        return None
    return with_draw(case, variant=variant)


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    variant, batch, boundary = int(case.draw["variant"] or 0), case.batch, ask.boundary
    by_id = value_of(boundary.claims.grouping) == "id"
    if not groups_recognizable(boundary, batch) or (variant == 1 and not by_id):
        return
    order = interleaved(batch.group) if variant == 1 else torch.arange(batch.rows, device=batch.device)
    other = take_rows(batch, order) if variant == 1 else relabeled(batch)
    before = ask(case, gradients=slopes(boundary))
    after = ask(with_batch(case, other), gradients=slopes(boundary))
    after = at_rows(boundary, after, torch.argsort(order))
    scale = magnitude(batch, boundary.reads)
    reason = "ids only state which rows share a prompt"
    change = Change(CHANGES[variant])
    yield from same_tokens(boundary, batch, before, after, change=change, reason=reason, scale=scale)


LAW = Law(
    code="GRP002",
    name="group-label-matters",
    stages=frozenset({"reward", "normalize", "correct", "advantage", "policy-loss", "aggregate", "metric"}),
    claims=("grouping",),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=len(CHANGES),
)
