"""WGT001 weight-falls-with-policy: an importance weight rises with the probability under the sampler.

What it says:
    A weight of rollout correction is the ratio of a policy to the sampler. The two first agree; then the sampler gives
    one trained token more probability. The weight of that token, or of its row, must not rise. Bounds, a mean over the
    tokens of a row and a division by the mean weight keep this direction. A weight of 0 is a rejection, and is not
    compared.

Why it matters:
    An inverted weight doubles the error that it is meant to correct: what the sampler drew too often counts more, and
    what it drew too seldom less. Off policy, training goes on with a biased gradient; close to the sampler, all weights
    are near 1, and nothing shows.

A boundary that breaks it:
    >>> import math
    >>> logprob, rollout_logprob = -1.0, -1.5  # the sampler drew the token too seldom
    >>> round(math.exp(rollout_logprob - logprob), 3)
    0.607
    >>> round(math.exp(logprob - rollout_logprob), 3)
    1.649

How to fix it:
    Take the exponential of the trained policy's log-prob minus the log-prob of the sampler, and bound it afterwards.
    ``rl_sentinel.signal.correction`` has weights per token and per response.

Where it does not apply:
    Boundaries that return no weight, or do not read two policies. Weights that do not change.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.batch import with_columns
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.expectations import Expectation, Within
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import magnitude
from rl_sentinel.search.transforms import on_policy

#: How far the log-prob of the sampler rises, in nats; one per variant. A narrow range rejects the larger one.
AMOUNTS = (0.05, 0.0005)

#: Policies from the newest to the one that sampled.
_POLICIES = ("logprob", "old_logprob", "rollout_logprob")


def _weights(boundary: Boundary) -> list[str]:
    """The outputs that are weights, per token or per row."""
    return [n for n, o in boundary.outputs.items() if o.quantity == "weight" and o.axes in ("B", "B T")]


def _policies(boundary: Boundary) -> list[str]:
    return [name for name in _POLICIES if name in boundary.reads]


def _applies(boundary: Boundary) -> str:
    if not _weights(boundary):
        return "the boundary returns no weight"
    return "" if len(_policies(boundary)) > 1 else "the boundary does not read a policy and a sampler"


def _vary(case: Case, variant: int) -> Case | None:
    rows = torch.nonzero(case.batch.live).flatten().tolist()
    if not rows:
        return None
    return with_draw(with_batch(case, on_policy(case.batch)), variant=variant, row=rows[0], amount=AMOUNTS[variant])


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    boundary, batch = ask.boundary, case.batch
    row, amount = int(case.draw["row"] or 0), float(case.draw["amount"] or 0)
    token, sampler = int(batch.mask[row].int().argmax()), _policies(boundary)[-1]
    more = getattr(batch, sampler).clone()
    more[row, token] += amount
    apart = with_columns(batch, **{sampler: more})
    near, far = ask(case).values, ask(with_batch(case, apart)).values
    for name in _weights(boundary):
        cell = torch.zeros_like(near[name], dtype=torch.bool)
        cell[(row, token) if cell.dim() == 2 else row] = True
        finite = near[name].isfinite() & far[name].isfinite()
        where = cell & finite & (near[name] != far[name]) & (near[name] > 0) & (far[name] > 0)
        reason = (
            f"in the other call the sampler's log-prob of token {token} of row {row} is higher by {amount:g} nats, "
            "which must not raise its weight"
        )
        scale = magnitude(apart, boundary.reads)
        yield Within(name, near[name], far[name], None, where, scale, reason=reason, between_calls=True)


LAW = Law(
    code="WGT001",
    name="weight-falls-with-policy",
    stages=frozenset({"correct"}),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=len(AMOUNTS),
)
