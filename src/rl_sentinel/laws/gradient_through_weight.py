"""GRD001 gradient-through-weight: a gradient flows through a weight that is claimed constant.

What it says:
    Importance weights and masks that a boundary computes from current log-probs, and that it
    claims constant, carry no gradient.

Why it matters:
    A differentiated weight adds a second term to the policy gradient, as large as the first one. No logged number shows
    it.

A boundary that breaks it:
    >>> import torch
    >>> logprob, rollout = torch.tensor([-1.0], requires_grad=True), torch.tensor([-1.5])
    >>> (logprob - rollout).exp().requires_grad, (logprob.detach() - rollout).exp().requires_grad
    (True, False)

How to fix it:
    Call ``detach`` on weights, on keep-decisions and on what they are computed from. The functions of
    ``rl_sentinel.signal.correction`` return weights without a gradient.

Where it does not apply:
    Boundaries that do not claim constant weights, that read no current log-probs, or that do not expose whether each
    weight requires a gradient (outputs of the quantity ``requires_grad``, 0 or 1).

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask


def _flags(boundary: Boundary) -> list[str]:
    return [n for n, o in boundary.outputs.items() if o.quantity == "requires_grad" and o.axes == ""]


def _applies(boundary: Boundary) -> str:
    if value_of(boundary.claims.weights) != "constant":
        return "the boundary does not claim constant weights"
    if "logprob" not in boundary.reads:
        return "the boundary reads no current log-probs"
    return "" if _flags(boundary) else "the boundary does not expose whether a weight requires a gradient"


def _vary(case: Case, variant: int) -> Case | None:
    return with_draw(case, variant=variant) if bool(case.batch.live.any()) else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    seen = ask(case, gradients=("logprob",) if "loss" in ask.boundary.outputs else ())
    for name in _flags(ask.boundary):
        says = f"{name.removesuffix('_requires_grad')} is claimed to be constant, yet it requires a gradient"
        yield Equal(
            name,
            torch.tensor(0.0, device=seen.values[name].device),
            seen.values[name].float(),
            tolerance=0.5,
            says=says,
        )


LAW = Law(
    code="GRD001",
    name="gradient-through-weight",
    stages=frozenset({"policy-loss", "correct"}),
    claims=("weights",),
    applies=_applies,
    vary=_vary,
    expect=_expect,
)
