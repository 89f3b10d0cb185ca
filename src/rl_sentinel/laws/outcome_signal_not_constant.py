"""PLC003 outcome-signal-not-constant: an outcome gives the tokens of its response different values.

What it says:
    An estimator that knows nothing but the outcome of a response gives one value to all its trained
    tokens.

Why it matters:
    The outcome says nothing about single tokens. If they still get different values, some are trained harder for
    another reason: their position, their length, a mask that is off by one.

A boundary that breaks it:
    >>> import torch
    >>> reward, mask = torch.tensor([[2.0]]), torch.tensor([[1.0, 1.0]])
    >>> (reward * mask / mask.cumsum(1)).tolist()
    [[2.0, 1.0]]
    >>> (reward * mask).tolist()
    [[2.0, 2.0]]

How to fix it:
    Keep an outcome advantage as one number per response until the loss needs it per token:
    ``rl_sentinel.signal.align.spread``. If per-token credit is intended, claim it.

Where it does not apply:
    Estimators that spread credit over time, or that return no advantage per token; batches with rewards per token.
    Log-probs of all policies are set equal, so that a KL term in the reward is zero.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import advantages, magnitude, one_value_in_row
from rl_sentinel.search.preconditions import repeats_trajectory
from rl_sentinel.search.transforms import on_policy


def _per_token(boundary: Boundary) -> list[str]:
    return [name for name in advantages(boundary) if boundary.outputs[name].axes == "B T"]


def _applies(boundary: Boundary) -> str:
    if value_of(boundary.claims.credit) != "outcome":
        return "the boundary does not claim that the outcome credits the whole response"
    return "" if _per_token(boundary) else "the boundary has no advantage per token"


def _vary(case: Case, variant: int) -> Case | None:
    long = bool((case.batch.mask.sum(dim=1) > 1).any())
    if not long or bool(case.batch.token_reward.any()):
        return None
    return with_draw(with_batch(case, on_policy(case.batch)), variant=variant)


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    if repeats_trajectory(case.batch) and value_of(ask.boundary.claims.trajectories) != "step-wise":
        return
    seen = ask(case)
    scale = magnitude(case.batch, ask.boundary.reads)
    for name in _per_token(ask.boundary):
        yield one_value_in_row(name, seen.values[name], case.batch, scale)


LAW = Law(
    code="PLC003",
    name="outcome-signal-not-constant",
    stages=frozenset({"advantage"}),
    claims=("credit", "trajectories"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    shows_with="PLC001",
)
