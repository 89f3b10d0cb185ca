"""SHF002 reward-scale-matters: advantages from standardized rewards change with the scale of the rewards.

What it says:
    Where rewards are claimed to be standardized, multiplying all of them by a positive factor leaves
    the advantages unchanged.

Why it matters:
    Standardizing makes the step size independent of the unit of the reward. If the step size still depends on it, a
    reward function in percent trains a hundred times as hard as the same function in fractions.

A boundary that breaks it:
    >>> import torch
    >>> reward = torch.tensor([1.0, 0.0])
    >>> [((f * reward - (f * reward).mean()) / (f * reward).var()).tolist() for f in (1, 2)]
    [[1.0, -1.0], [0.5, -0.5]]
    >>> deviation = (2 * reward).std(correction=0)
    >>> ((2 * reward - (2 * reward).mean()) / deviation).tolist()
    [1.0, -1.0]

How to fix it:
    Divide centered rewards by their deviation, with an epsilon that is small beside it:
    ``rl_sentinel.signal.advantage.grpo.advantages(standardize=True)``. Do not clip or add constants between the
    two.

Where it does not apply:
    Estimators that do not claim to standardize, that read no task reward, or that read a reference policy (a KL term in
    the reward has another unit); batches with rewards per token; rows and groups that SHF001 leaves out.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from rl_sentinel.core.batch import with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Change, Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import advantages, cells
from rl_sentinel.search.preconditions import groups_recognizable, outcomes_compare, rewards_differ
from rl_sentinel.search.transforms import on_policy

#: Factor on all rewards; a power of two, so that it rounds nothing.
FACTOR = 2.0

#: What a small number added to the standard deviation may change, in standard deviations.
TOLERANCE = 0.02

#: Columns that hold a task reward or a baseline that is subtracted from it.
SCALED = frozenset({"reward", "reward_parts", "reward_baseline", "value", "old_value"})


def _applies(boundary: Boundary) -> str:
    if value_of(boundary.claims.standardized) is not True:
        return "the boundary does not claim to standardize rewards"
    if "ref_logprob" in boundary.reads:
        return "the boundary's reward may hold a KL term"
    return "" if boundary.reads & {"reward", "reward_parts"} else "the boundary reads no task reward"


def _vary(case: Case, variant: int) -> Case | None:
    fit = outcomes_compare(case.batch) and not bool(case.batch.token_reward.any())
    even = with_batch(case, on_policy(case.batch))  # a rejected sibling would leave a row alone
    return with_draw(even, variant=variant) if fit and bool(rewards_differ(case.batch).any()) else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    batch, boundary = case.batch, ask.boundary
    if not groups_recognizable(boundary, batch):
        return
    other = with_columns(batch, **{n: FACTOR * getattr(batch, n) for n in SCALED & boundary.reads})
    before, after = ask(case).values, ask(with_batch(case, other)).values
    for name in advantages(boundary):
        kept = batch.mask if before[name].dim() == 2 else batch.live
        where = cells(rewards_differ(batch), before[name]) & kept
        change = Change(f"multiplying all rewards by {FACTOR:g}")
        reason = "rewards are claimed to be standardized"
        yield Equal(name, before[name], after[name], where, tolerance=TOLERANCE, change=change, reason=reason)


LAW = Law(
    code="SHF002",
    name="reward-scale-matters",
    stages=frozenset({"normalize", "advantage"}),
    claims=("grouping", "standardized"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    level=lambda _case: "contested",
    intended="The unit of the reward may be meant to set the step size.",
)
