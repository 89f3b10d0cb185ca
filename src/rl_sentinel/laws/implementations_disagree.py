"""PAR001 implementations-disagree: two implementations of one algorithm give different results.

What it says:
    Two implementations of one algorithm in one framework give the same outputs at trained tokens.

Why it matters:
    A fast variant is chosen for its speed, or by a default that changed. If it computes something
    else, two runs under the same name are two experiments.

A boundary that breaks it:
    >>> import torch
    >>> reward = torch.tensor([1.0, 0.0])
    >>> ((reward - reward.mean()) / reward.std()).tolist()
    [0.7071067690849304, -0.7071067690849304]
    >>> ((reward - reward.mean()) / reward.std(correction=0)).tolist()
    [1.0, -1.0]

How to fix it:
    Use one of the two implementations everywhere, or let one call the other. They are not interchangeable as
    they are.

Where it does not apply:
    Boundaries without another implementation; cases that either of them refuses; interleaved groups, which
    GRP002 reports; groups of equal rewards, whose rounding DEG002 reports.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.errors import NotApplicable, Refused
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import SIGNAL_STAGES, magnitude, same_tokens
from rl_sentinel.search.preconditions import contiguous, live_in_group, rewards_differ


def _applies(boundary: Boundary) -> str:
    return "" if boundary.alternatives else "no other implementation of this algorithm is bound"


def _vary(case: Case, variant: int) -> Case | None:
    batch = case.batch
    level = (live_in_group(batch) > 1) & ~rewards_differ(batch)
    fit = bool(batch.live.any()) and contiguous(batch.group) and not bool(level.any())
    return with_draw(case, variant=variant) if fit else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    boundary, batch = ask.boundary, case.batch
    result = ask(case)
    scale = magnitude(batch, boundary.reads)
    for path in boundary.alternatives:
        try:
            other = ask(case, on=path)
        except (Refused, NotApplicable):
            continue
        alone = [name for name in boundary.outputs if name not in other.values]
        reason = f"{_short(path, boundary.path)} implements the same algorithm and returns the expected value"
        yield from same_tokens(boundary, batch, other, result, change=None, reason=reason, scale=scale, skip=alone)


def _short(path: str, compared: str) -> str:
    """The name of the function, or the whole path if both functions have the same name."""
    name = path.rpartition(".")[2]
    return path if name == compared.rpartition(".")[2] else name


LAW = Law(
    code="PAR001",
    name="implementations-disagree",
    stages=SIGNAL_STAGES,
    applies=_applies,
    vary=_vary,
    expect=_expect,
    level=lambda _case: "contested",
    intended="The paper may leave a choice, so that both functions are right.",
)
