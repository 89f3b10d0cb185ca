"""MSK003 suppressed-reward-shifts-signal: a reward that is declared suppressed still changes a result.

What it says:
    If a boundary says that it suppresses the task reward of a response (which never ended, or is too long), that reward
    changes nothing: neither the signal of its own row nor that of another row.

Why it matters:
    If the reward is suppressed only after normalizing, it is still in the mean and the deviation. So a reward that was
    declared invalid changes the advantages of responses that did end.

A boundary that breaks it:
    >>> import torch
    >>> reward, scored = torch.tensor([1.0, 99.0]), torch.tensor([True, False])
    >>> torch.where(scored, reward - reward.mean(), 0.0).tolist()
    [-49.0, 0.0]
    >>> kept = torch.where(scored, reward, 0.0)
    >>> (kept - kept.mean()).tolist()
    [0.5, -0.5]

How to fix it:
    Leave the response out before statistics are computed: ``rl_sentinel.signal.reward.suppressed`` and
    ``scored=`` of ``rl_sentinel.signal.rollout.Rollout``. A 0 in the place of its reward still counts in the
    mean.

Where it does not apply:
    Boundaries that do not claim to suppress (``suppresses``) or read no task reward. A zero in the place of the reward
    before normalizing is no fault: the zero counts, the reward does not.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import change_of, magnitude, same_tokens
from rl_sentinel.search.transforms import outcome_moved

#: How far the suppressed reward is moved, in reward units.
AMOUNTS = (1.0, -1.0, 100.0, -100.0)


def _applies(boundary: Boundary) -> str:
    if value_of(boundary.claims.suppresses) != "unscored":
        return "the boundary does not claim to suppress a reward"
    return "" if boundary.reads & {"reward", "reward_parts"} else "the boundary reads no task reward"


def _vary(case: Case, variant: int) -> Case | None:
    batch = case.batch
    ended = batch.length < batch.width  # what never ended fills the width, so no layout can disagree
    suppressed = torch.nonzero(batch.live & ~batch.scored & ~ended).flatten().tolist()
    if not suppressed or not bool((batch.live & batch.scored & ended).any()):
        return None
    return with_draw(case, variant=variant, row=suppressed[0])


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    row, batch = int(case.draw["row"] or 0), case.batch
    before = ask(case)
    there = torch.arange(batch.rows, device=batch.device) == row
    for amount in AMOUNTS:
        other = outcome_moved(batch, ask.boundary.reads, there, amount)
        after = ask(with_batch(case, other))
        column = "reward" if "reward" in ask.boundary.reads else "reward_parts"
        change = change_of(column, batch, other, f"its {column}")
        reason, scale = f"row {row} is not scored", magnitude(other, ask.boundary.reads)
        yield from same_tokens(ask.boundary, batch, before, after, change=change, reason=reason, scale=scale)


LAW = Law(
    code="MSK003",
    name="suppressed-reward-shifts-signal",
    stages=frozenset({"reward", "normalize", "advantage"}),
    claims=("suppresses",),
    applies=_applies,
    vary=_vary,
    expect=_expect,
)
