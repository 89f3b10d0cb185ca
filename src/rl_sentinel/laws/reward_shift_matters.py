"""SHF001 reward-shift-matters: advantages with a relative baseline change when a constant is added to the rewards.

What it says:
    Where the baseline is claimed to be relative, adding a constant to the rewards of a prompt's
    responses leaves their advantages unchanged.

Why it matters:
    A relative estimator compares siblings. If the zero point of the reward matters, adding a constant, which cannot
    change the ranking, changes the training signal.

A boundary that breaks it:
    >>> import torch
    >>> reward = torch.tensor([1.0, 0.0])
    >>> (reward - 0.5 * reward.mean()).tolist(), (reward + 4 - 0.5 * (reward + 4).mean()).tolist()
    ([0.75, -0.25], [2.75, 1.75])
    >>> (reward + 4 - (reward + 4).mean()).tolist()
    [0.5, -0.5]

How to fix it:
    Subtract the mean of the same rewards that are summed, with the same mask:
    ``rl_sentinel.signal.groups.centered``. Look for a missing reward that is replaced by 0.

Where it does not apply:
    Boundaries that claim no relative baseline or read no task reward; batches with a row that is dead, suppressed,
    alone in its group, masked at its last token, or one step of a trajectory; groups of equal rewards, which DEG002
    reports.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Change, Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import advantages, cells, magnitude
from rl_sentinel.search.preconditions import groups_recognizable, outcomes_compare, rewards_differ
from rl_sentinel.search.transforms import on_policy, outcome_moved

#: Constants that are added, in reward units; exact in float32 beside the rewards of cases.
AMOUNTS = (1.0, -1.0, 4.0)

#: A further constant, beside which a deviation from sums of squares cancels. Callers of a user's function may know that
#: rewards are small.
LARGE = 4096.0


def _applies(boundary: Boundary) -> str:
    if value_of(boundary.claims.baseline) != "relative":
        return "the boundary does not claim a relative baseline"
    return "" if boundary.reads & {"reward", "reward_parts"} else "the boundary reads no task reward"


def _vary(case: Case, variant: int) -> Case | None:
    rows = outcomes_compare(case.batch) and bool(rewards_differ(case.batch).any())
    even = with_batch(case, on_policy(case.batch))  # a rejected sibling would leave a row alone
    return with_draw(even, variant=variant) if rows else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    batch, boundary = case.batch, ask.boundary
    if not groups_recognizable(boundary, batch):
        return
    differ = rewards_differ(batch)
    one_group = batch.group == batch.group[differ][0]
    alone = value_of(boundary.claims.scope) == "group"
    moved_rows = one_group if alone else torch.ones_like(one_group)
    before = ask(case).values
    for amount in AMOUNTS if boundary.own else (*AMOUNTS, LARGE):
        other = outcome_moved(batch, boundary.reads, moved_rows, amount)
        after = ask(with_batch(case, other)).values
        whose, this = ("one group", f"group {int(batch.group[differ][0])}") if alone else ("all rows", "all rows")
        change = Change(f"adding {amount:g} to the rewards of {this}")
        reason = f"a constant added to the rewards of {whose} must cancel (claimed: relative baseline)"
        scale = magnitude(other, boundary.reads)
        for name in advantages(boundary):
            where = cells(differ, before[name]) & (batch.mask if before[name].dim() == 2 else batch.live)
            yield Equal(name, before[name], after[name], where, scale, change=change, reason=reason)


LAW = Law(
    code="SHF001",
    name="reward-shift-matters",
    stages=frozenset({"normalize", "advantage"}),
    claims=("baseline", "grouping", "scope"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    level=lambda _case: "contested",
    intended="The zero of the reward may carry meaning, such as the reward of an empty answer.",
)
