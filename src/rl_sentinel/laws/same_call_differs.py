"""PUR002 same-call-differs: the same call with the same seed gives another result.

What it says:
    The same call with the same seed gives the same result, to the last bit.

Why it matters:
    A signal that keeps state between calls, or reads uninitialized memory, cannot be replayed:
    no run can be resumed and no bug bisected.

A boundary that breaks it:
    >>> import torch
    >>> seen = []
    >>> def centered(reward: torch.Tensor) -> torch.Tensor:
    ...     seen.append(reward)
    ...     return reward - torch.cat(seen).mean()
    >>> centered(torch.tensor([1.0])).item(), centered(torch.tensor([3.0])).item()
    (0.0, 1.0)

How to fix it:
    Draw random numbers from a generator that is passed in, keep no state in module variables, and do not use
    ``torch.empty`` without filling it.

Where it does not apply:
    Boundaries that claim to keep state (a running mean, an adaptive coefficient).

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.expectations import Change, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Observation
from rl_sentinel.search.comparison import SIGNAL_STAGES, same_tokens, slopes


def _applies(boundary: Boundary) -> str:
    return "the boundary claims to keep state between calls" if boundary.claims.state else ""


def _vary(case: Case, variant: int) -> Case | None:
    return with_draw(case, variant=variant) if bool(case.batch.live.any()) else None


def _differ(before: Observation, after: Observation) -> bool:
    pairs = [(before.values, after.values), (before.gradients, after.gradients)]
    return any(not torch.equal(a[n].nan_to_num(), b[n].nan_to_num()) for a, b in pairs for n in a)


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    wanted = slopes(ask.boundary)
    before, after = ask(case, gradients=wanted), ask(case, gradients=wanted, fresh=True)
    if _differ(before, after):  # shown by two calls in a row, with nothing between them
        before, after = after, ask(case, gradients=wanted, fresh=True)
    reason, change = "equal calls must give equal results", Change("making the same call again")
    for equal in same_tokens(ask.boundary, case.batch, before, after, change=change, reason=reason, scale=0.0):
        yield replace(equal, tolerance=0.0)


LAW = Law(
    code="PUR002",
    name="same-call-differs",
    stages=SIGNAL_STAGES | {"batch", "step"},
    claims=("state",),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    few_cases=True,
)
