"""MET002 metric-cannot-move: a metric has the same value for every batch.

What it says:
    A logged metric takes more than one value over all cases: rewards, log-probs, masks and lengths
    that differ show in it somewhere.

Why it matters:
    A constant curve looks as if everything were fine. A clip fraction that is always 0, or a
    KL of a policy with itself, hides what it is meant to show.

A boundary that breaks it:
    >>> import torch
    >>> def clip_fraction(logprob):
    ...     old_logprob = logprob.detach()  # not the sampler's
    ...     ratio = (logprob - old_logprob).exp()
    ...     return ((ratio - 1).abs() > 0.2).float().mean().item()
    >>> {clip_fraction(torch.tensor(x)) for x in ([-1.0, -2.0], [-3.0, -0.1])}
    {0.0}

How to fix it:
    Check that the two policies compared are different tensors, and that the metric is computed before its
    inputs are overwritten, clamped or detached into one. ``rl_sentinel.signal.metrics`` has the usual ones.

Where it does not apply:
    Numbers without a declared quantity, which may be constants of the run. Boundaries that read
    nothing but labels.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.expectations import Change, Expectation, Moves
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.core.phrasing import number
from rl_sentinel.search.companion_cases import companions, observation_or_none

#: Number of cases with a result that are needed before a metric is reported as constant.
ENOUGH = 16


def _metrics(boundary: Boundary) -> list[str]:
    return [n for n, o in boundary.outputs.items() if o.axes == "" and o.quantity]


def _applies(boundary: Boundary) -> str:
    if not _metrics(boundary):
        return "the boundary logs no number of a declared quantity"
    moves = any(COLUMNS[n]["role"] != "label" for n in boundary.reads)
    return "" if moves else "the boundary reads labels only"


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    first = ask(case).values
    constant, count, last = set(_metrics(ask.boundary)), 0, first
    for companion in companions(case):
        observation = observation_or_none(ask, companion)
        count += observation is not None
        if observation is not None:
            last = observation.values
            constant = {n for n in constant if _same(first[n], observation.values[n])}
        if not constant:
            break
    if constant and count < ENOUGH:
        return
    for name in _metrics(ask.boundary):
        change, moved = Change("changing the batch"), torch.tensor(name not in constant, device="cpu")
        results = {name: (first[name], last.get(name, first[name]))}
        reason = f"it is always {number(first[name].item())}"
        yield Moves(name, change, moved, results, trials=count, reason=reason)


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(torch.isclose(a.double(), b.double(), rtol=1e-6, atol=1e-9, equal_nan=True))


LAW = Law(
    code="MET002",
    name="metric-cannot-move",
    stages=frozenset({"metric"}),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
    fails="on-all-cases",
)
