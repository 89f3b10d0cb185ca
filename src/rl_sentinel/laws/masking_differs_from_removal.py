"""MSK006 masking-differs-from-removal: masking a row out gives other advantages than removing it.

What it says:
    Masking out all tokens of a row gives the other rows the advantages that they get when the row
    is left out of the batch.

Why it matters:
    A row that trains nothing can still count: as a sibling in a group size, as a zero in a mean.
    The rest of its group is then compared with a response that was removed.

A boundary that breaks it:
    >>> import torch
    >>> reward, live = torch.tensor([2.0, 0.0, 7.0]), torch.tensor([True, True, False])
    >>> ((reward - (reward * live).sum() / 3) * live).tolist()
    [1.3333332538604736, -0.6666666865348816, 0.0]
    >>> (reward[live] - reward[live].mean()).tolist()
    [1.0, -1.0]

How to fix it:
    Count live rows only, also in group sizes and in n - 1: ``rl_sentinel.signal.groups.group_counts``. The
    estimators of ``rl_sentinel.signal.advantage`` take ``live``.

Where it does not apply:
    Boundaries that read no mask; batches in which the dead row is one step of a longer trajectory. Boundaries that take
    a fixed number of rows per prompt, except in a recipe that rejects responses: there, the formula of the claimed
    estimator over the other rows gives the expected values. The level is contested if the row was sampled and then
    rejected or cut off, because it may count as a sample. The level is hazard in a user's function whose callers may
    never pass a row without a trained token; a recipe that rejects responses passes such rows.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator
from functools import partial

import torch

from rl_sentinel.core.batch import take_rows
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.errors import NotApplicable
from rl_sentinel.core.expectations import Change, Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Observation
from rl_sentinel.formulas.algorithms import known_advantages
from rl_sentinel.search.claimed_advantages import accepted_advantages, advantages_of_others
from rl_sentinel.search.comparison import advantages, at_rows, finite_only, magnitude, not_trained, same_tokens
from rl_sentinel.search.formula_reading import fitting
from rl_sentinel.search.preconditions import groups_recognizable, level_of_dead_row, repeats_trajectory
from rl_sentinel.search.transforms import on_policy


def _applies(boundary: Boundary) -> str:
    return "" if "mask" in boundary.reads else "the boundary reads no mask"


def _vary(case: Case, variant: int) -> Case | None:
    dead = torch.nonzero(~case.batch.live).flatten().tolist()
    if not dead or not bool(case.batch.live.any()) or repeats_trajectory(case.batch):
        return None
    return with_draw(case, variant=variant, row=dead[0])


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    row, boundary = int(case.draw["row"] or 0), ask.boundary
    if not groups_recognizable(boundary, case.batch):
        return
    others = torch.nonzero(torch.arange(case.batch.rows, device=case.batch.device) != row).squeeze(1)
    smaller, whole = take_rows(case.batch, others), ask(case)
    try:
        removed = ask(with_batch(case, smaller))
    except NotApplicable:  # it takes a fixed number of rows per prompt
        if not (boundary.has_dead_rows and known_advantages(boundary)):
            raise
        yield from _by_formula(ask, case, row, whole)
        return
    masked = at_rows(boundary, whole, others)
    reason, change = not_trained([row]), Change("keeping it in the batch")
    scale = magnitude(case.batch, boundary.reads)
    yield from same_tokens(boundary, smaller, removed, masked, change=change, reason=reason, scale=scale, numbers=False)


def _by_formula(ask: Ask, case: Case, row: int, observed: Observation) -> Iterator[Expectation]:
    """The formula of the claimed estimator gives the advantages without the row, which cannot be removed."""
    boundary, even = ask.boundary, with_batch(case, on_policy(case.batch))
    for name in advantages(boundary):
        reading = fitting(ask, even, name, partial(accepted_advantages, boundary, name)).name
        found = advantages_of_others(boundary, name, case, reading)
        if found is not None:
            algorithm = value_of(boundary.claims.algorithm)
            reason = (
                f"row {row} is not trained, and the formula of {algorithm} over the other rows gives the expected value"
            )
            scale = magnitude(case.batch, boundary.reads)
            yield finite_only(Equal(name, found[0], observed.values[name], found[1], scale, reason=reason))


LAW = Law(
    code="MSK006",
    name="masking-differs-from-removal",
    stages=frozenset({"advantage"}),
    claims=(
        "algorithm",
        "baseline",
        "corrected_at_most",
        "deviation",
        "deviation_of",
        "grouping",
        "output_definitions",
        "standardized",
        "trajectories",
        "untrained",
    ),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    level=level_of_dead_row,
    own_level=lambda _case: "hazard",  # many functions multiply rewards by the mask, and never get such a row
    of_dead_rows=True,
    shows_with="MSK001",
    intended="A rejected response was still sampled, so its reward is an unbiased sample for the baseline.",
)
