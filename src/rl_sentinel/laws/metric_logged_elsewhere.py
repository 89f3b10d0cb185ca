"""MET006 metric-logged-elsewhere: a metric is logged under the wrong mode or at the wrong step.

What it says:
    Numbers of an evaluation are logged as evaluation, and numbers of a training step as training, no matter what
    triggers the evaluation and when. Each number is logged at its step, and none is left out.

Why it matters:
    A training curve that includes numbers of another data set or other sampling settings changes without a change of
    the policy. The evaluation curve lacks these numbers, or shows training data. A score that is logged one step late
    describes other weights than the checkpoint of that step. A score that waits for a step that never comes is lost.

A boundary that breaks it:
    >>> numbers = {"train": [], "eval": []}
    >>> def log(number, *, training, evaluation_is_due):
    ...     numbers["eval" if evaluation_is_due else "train"].append(number)
    >>> log(0.5, training=True, evaluation_is_due=True)  # the last step before an evaluation
    >>> numbers
    {'train': [], 'eval': [0.5]}

How to fix it:
    Keep one store of metrics per mode, choose it when a number is written, and restore the mode after the
    evaluation also if it raises. Log a step once, after its evaluation, under its own number.

Where it does not apply:
    Boundaries that do not report how many numbers are logged under the wrong mode or step (an output of the quantity
    ``logged_elsewhere``).

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask

#: The quantity: how many numbers are logged under the other mode, or under another step.
QUANTITY = "logged_elsewhere"


def _counts(boundary: Boundary) -> list[str]:
    return [name for name, output in boundary.outputs.items() if output.quantity == QUANTITY]


def _applies(boundary: Boundary) -> str:
    return "" if _counts(boundary) else "the boundary does not report where numbers are logged"


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    seen = ask(case).values
    for name in _counts(ask.boundary):
        reason = "each number must be logged under its mode and at its step"
        yield Equal(name, torch.zeros_like(seen[name]), seen[name], None, tolerance=0.0, reason=reason)


LAW = Law(
    code="MET006",
    name="metric-logged-elsewhere",
    stages=frozenset({"batch"}),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
)
