"""GRD003 infinite-gradient-applied: an update changes the weights although its gradient is NaN or infinite.

What it says:
    An update whose gradient has a number that is not finite is skipped or refused: all weights stay as they were.

Why it matters:
    One NaN in a gradient makes the norm of all gradients NaN. Clipping then multiplies every gradient by NaN, and the
    optimizer writes NaN to all weights. The run goes on with a policy that is lost, and the next checkpoint saves it.

A boundary that breaks it:
    >>> import torch
    >>> weights = torch.zeros(2, requires_grad=True)
    >>> weights.grad = torch.tensor([1.0, float("nan")])
    >>> _norm = torch.nn.utils.clip_grad_norm_([weights], 1.0)
    >>> torch.optim.SGD([weights], lr=1.0).step()
    >>> weights.tolist()
    [nan, nan]

How to fix it:
    Compare the norm that clipping returns with infinity before the optimizer's step, and clear the gradients without a
    step if it is not finite. Log that the update was skipped.

Where it does not apply:
    Boundaries that do not report how many weights such an update changes (an output of the quantity
    ``changed_by_overflow``).

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

#: The quantity: number of weights that an update with a gradient that is not finite changes.
QUANTITY = "changed_by_overflow"


def _counts(boundary: Boundary) -> list[str]:
    return [name for name, output in boundary.outputs.items() if output.quantity == QUANTITY]


def _applies(boundary: Boundary) -> str:
    return "" if _counts(boundary) else "the boundary does not report what a gradient that is not finite changes"


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    seen = ask(case).values
    for name in _counts(ask.boundary):
        reason = "an update whose gradient is not finite must be skipped"
        yield Equal(name, torch.zeros_like(seen[name]), seen[name], None, tolerance=0.0, reason=reason)


LAW = Law(
    code="GRD003",
    name="infinite-gradient-applied",
    stages=frozenset({"step"}),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
)
