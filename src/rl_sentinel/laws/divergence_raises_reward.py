"""KLR001 divergence-raises-reward: a KL penalty raises the reward as the policy leaves its reference.

What it says:
    A KL penalty in a reward lowers the reward. Policy and reference first give each token the same probability; then
    the reference gives one trained token less. The reward at that token must not rise. Neither must the outcome of its
    row, nor the advantage that is computed from them. All estimators (k1, its absolute value, k2 and k3) are positive
    there, so the direction does not depend on the estimator.

Why it matters:
    A penalty of the wrong sign pays the policy for leaving its reference. The reward rises, which looks like success,
    until the text falls apart.

A boundary that breaks it:
    >>> reward, coefficient, logprob, ref_logprob = 1.0, 0.5, -1.0, -3.0
    >>> reward + coefficient * (logprob - ref_logprob)  # the penalty is added
    2.0
    >>> reward - coefficient * (logprob - ref_logprob)
    0.0

How to fix it:
    Subtract the coefficient times the KL, and compute the log-ratio as the policy's log-prob minus the log-prob of the
    reference. ``rl_sentinel.signal.penalty.in_reward`` does both.

Where it does not apply:
    Boundaries that read no reference beside a policy, or return no reward and no advantage. Rewards that do not depend
    on the reference, such as with a coefficient of 0.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.expectations import Expectation, Within
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import advantages, magnitude
from rl_sentinel.search.transforms import on_policy

#: How far the log-prob of the reference falls, in nats; one per variant.
AMOUNTS = (0.5, 5.0)

#: Log-probs of the policy that may be compared with the reference.
_POLICIES = frozenset({"logprob", "old_logprob", "rollout_logprob"})


def _rewards(boundary: Boundary) -> tuple[str, ...]:
    """The outputs that a KL penalty must lower."""
    if boundary.stage == "advantage":
        return advantages(boundary)
    return tuple(n for n, o in boundary.outputs.items() if o.unit == "reward" and o.axes in ("B", "B T"))


def _applies(boundary: Boundary) -> str:
    if "ref_logprob" not in boundary.reads or not boundary.reads & _POLICIES:
        return "the boundary does not read log-probs of both a policy and a reference"
    return "" if _rewards(boundary) else "the boundary returns no reward and no advantage"


def _vary(case: Case, variant: int) -> Case | None:
    rows = torch.nonzero(case.batch.live).flatten().tolist()
    if not rows:
        return None
    even = with_batch(case, on_policy(case.batch))
    # The first trained token: no earlier one has a return that the penalty lowers too.
    return with_draw(even, variant=variant, row=rows[0], amount=AMOUNTS[variant])


def _charged(batch: Batch, row: int, changed: Tensor) -> Tensor:
    """True at the cell that carries the penalty: the row, or its first trained token if this changed, else its last."""
    cells = torch.zeros_like(changed)
    if changed.dim() == 1:
        cells[row] = True
        return cells
    first = int(batch.mask[row].int().argmax())
    last = int(batch.valid[row].sum()) - 1
    cells[row, first if bool(changed[row, first]) else last] = True
    return cells


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    boundary, batch = ask.boundary, case.batch
    row, amount = int(case.draw["row"] or 0), float(case.draw["amount"] or 0)
    reference = batch.ref_logprob.clone()
    token = int(batch.mask[row].int().argmax())
    reference[row, token] -= amount
    apart = with_columns(batch, ref_logprob=reference)
    near, far = ask(case).values, ask(with_batch(case, apart)).values
    scale = magnitude(apart, boundary.reads)
    for name in _rewards(boundary):
        where = _charged(batch, row, near[name] != far[name])
        where = where & (near[name] != far[name]) & near[name].isfinite() & far[name].isfinite()
        if boundary.stage == "advantage" and where.dim() == 2:  # no loss reads the advantage of an untrained token
            where = where & batch.mask
        reason = (
            f"in the other call the reference's log-prob of token {token} of row {row} is lower by {amount:g} nats, "
            "and a larger divergence must not raise it"
        )
        yield Within(name, near[name], far[name], None, where, scale, reason=reason, between_calls=True)


LAW = Law(
    code="KLR001",
    name="divergence-raises-reward",
    stages=frozenset({"reward", "kl", "advantage"}),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=len(AMOUNTS),
    own_level=lambda _case: "contested",
    intended="A reward for leaving the reference, such as a bonus for exploration, rises with the divergence.",
)
