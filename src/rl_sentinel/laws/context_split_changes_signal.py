"""SPL004 context-split-changes-signal: context parallelism changes a result.

What it says:
    Splitting each sequence over context-parallel ranks changes nothing at the trained tokens: no output, and no
    gradient of the loss.

Why it matters:
    Each rank holds pieces of every sequence. Cutting a mask at other positions than the values, using a statistic of
    one rank's tokens, or scaling by the number of ranks changes advantages or the learning rate, compared with a run
    without context parallelism.

A boundary that breaks it:
    >>> import torch
    >>> advantage = torch.tensor([1.0, 2.0, 3.0, 6.0])
    >>> (advantage - advantage.mean()).tolist()
    [-2.0, -1.0, 0.0, 3.0]
    >>> torch.cat([half - half.mean() for half in advantage.chunk(2)]).tolist()  # each rank by its own mean
    [-0.5, 0.5, -1.5, 1.5]

How to fix it:
    Cut masks and values with the same function, and sum numerators and denominators over all context-parallel
    ranks before dividing. Do not scale the loss by the number of these ranks unless the gradient reduction
    divides by it.

Where it does not apply:
    Boundaries whose adapter cannot split a sequence over ranks. Sequences that do not fill the pieces of all ranks.
    Numbers over all tokens, and metrics that declare no population.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator
from dataclasses import replace

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw, with_layout
from rl_sentinel.core.expectations import Change, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import beyond_tokens, magnitude, same_tokens, slopes

#: Number of ranks that share each sequence.
RANKS = 2

#: Tokens added to each prompt, one number per variant, so that the response is split at other positions.
LONGER = (16, 21)


def _applies(boundary: Boundary) -> str:
    return "" if "context" in boundary.axes else "the adapter cannot split a sequence over ranks"


def _vary(case: Case, variant: int) -> Case | None:
    if not bool(case.batch.live.any()):
        return None
    batch = case.batch
    if int(batch.prompt_length.min()) < LONGER[0]:
        batch = replace(batch, prompt_length=batch.prompt_length + LONGER[variant])
    return with_draw(replace(case, batch=batch), variant=variant)


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    boundary, batch = ask.boundary, case.batch
    gradients = slopes(boundary) if "loss" in boundary.outputs else ()
    whole = ask(case, gradients=gradients)
    split = ask(with_layout(case, context=RANKS), gradients=gradients)
    change = Change(f"splitting each sequence over {RANKS} ranks")
    reason, skip = "the ranks together hold the same tokens", beyond_tokens(boundary)
    scale = magnitude(batch, boundary.reads)
    yield from same_tokens(boundary, batch, whole, split, change=change, reason=reason, scale=scale, skip=skip)


LAW = Law(
    code="SPL004",
    name="context-split-changes-signal",
    stages=frozenset({"parallel"}),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=len(LONGER),
)
