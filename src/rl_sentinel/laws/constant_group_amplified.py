"""DEG002 constant-group-amplified: a prompt whose rewards are all equal gets a nonzero advantage.

What it says:
    With a relative baseline, responses of equal reward get advantage zero, for rewards of any size. The allowed error
    is 4 roundings of the reward (of 1, if it is smaller) if advantages are claimed not to be standardized, else 1e-3.

Why it matters:
    A mean of equal numbers has a rounding error, which is divided by a deviation that should be zero.
    Groups without a signal (all solved, or all failed) are then trained on amplified rounding.

A boundary that breaks it:
    >>> import torch
    >>> reward = torch.full((3,), 100.1)
    >>> rest = reward - reward.sum() / 3
    >>> bool((rest / (rest.std() + 1e-12)).abs().max() < 1e-3), bool((reward - reward[0]).any())
    (True, False)
    >>> rest = torch.full((3,), 0.1) - 0.1000001
    >>> bool((rest / (rest.square().mean().sqrt() + 1e-6)).abs().max() < 1e-3)
    False

How to fix it:
    Center with a mean that is exact for equal numbers, and set the deviation of a constant group to 0 before
    dividing: ``rl_sentinel.signal.groups.centered`` and ``rl_sentinel.signal.groups.deviations``. Or drop groups
    of equal rewards before they are trained.

Where it does not apply:
    Boundaries that claim no relative baseline or read no task reward; batches with rewards per token, or with a row
    that is dead, suppressed, alone in its group, masked at its last token, or one step of a trajectory. In a user's
    function, the level of a finding is hazard.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.batch import take_rows, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import advantages
from rl_sentinel.search.preconditions import groups_recognizable, outcomes_compare
from rl_sentinel.search.transforms import on_policy

#: The reward of every row, which is not exact in binary, and how many rows one group gets
#: (0: groups as they are), one pair per variant. Whether a mean of equal numbers is exact depends on both:
#: three of 0.9 round, three of 0.1 do not, eight of 0.1 do.
VARIANTS = ((0.9, 0), (1.1, 0), (100.1, 0), (0.9, 3), (0.1, 8), (1.1, 10), (100.1, 8))

#: Allowed error of standardized advantages, in deviations.
STANDARDIZED = 1e-3

#: Rounding errors allowed in centered advantages, each relative to the reward (to 1 for smaller rewards).
ROUNDINGS = 4


def _applies(boundary: Boundary) -> str:
    if value_of(boundary.claims.baseline) != "relative":
        return "the boundary does not claim a relative baseline"
    return "" if boundary.reads & {"reward", "reward_parts"} else "the boundary reads no task reward"


def _vary(case: Case, variant: int) -> Case | None:
    batch, (size, count) = case.batch, VARIANTS[variant]
    if count:
        one = {
            "group": torch.zeros(count, dtype=torch.int64, device=batch.device),
            "trajectory": torch.arange(count, device=batch.device),
        }
        batch = with_columns(take_rows(batch, torch.arange(count, device=batch.device) % batch.rows), **one)
    if not outcomes_compare(batch) or bool(batch.token_reward.any()):
        return None
    parts = torch.full_like(batch.reward_parts, size)
    equal = with_columns(on_policy(batch), reward=torch.full_like(batch.reward, size), reward_parts=parts)
    return with_draw(with_batch(case, equal), variant=variant, reward=size)


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    batch, boundary, size = case.batch, ask.boundary, float(case.draw["reward"] or 0)
    if not groups_recognizable(boundary, batch):
        return
    centered = ROUNDINGS * torch.finfo(torch.float32).eps * max(1.0, size)
    allowed = centered if value_of(boundary.claims.standardized) is False else STANDARDIZED
    for name, value in ask(case).values.items():
        if name in advantages(boundary):
            where = batch.mask if value.dim() == 2 else batch.live
            reason = f"all {batch.rows} rows have the reward {size:g}"
            yield Equal(name, torch.zeros_like(value), value, where, tolerance=allowed, reason=reason)


LAW = Law(
    code="DEG002",
    name="constant-group-amplified",
    stages=frozenset({"normalize", "advantage"}),
    claims=("baseline", "grouping", "standardized"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    own_level=lambda _case: "hazard",  # the usual formula with a small epsilon, on rewards that are not exact in binary
    variants=len(VARIANTS),
)
