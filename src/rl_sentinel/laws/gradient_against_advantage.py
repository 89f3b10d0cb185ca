"""GRD002 gradient-against-advantage: a gradient step moves a log-prob against its advantage.

What it says:
    On fresh samples, with no regularizer and one advantage for each row, a gradient descent step never lowers the
    log-prob of a trained token with positive advantage, nor raises that of one with negative advantage.

Why it matters:
    A loss with the wrong sign on some rows or tokens makes rewarded responses less likely. With noisy rewards this
    looks like slow learning.

A boundary that breaks it:
    >>> import torch
    >>> logprob, advantage = torch.zeros(2, requires_grad=True), torch.tensor([1.0, -1.0])
    >>> (-(logprob * advantage.abs())).sum().backward()
    >>> logprob.grad.tolist()  # the second row is pushed up as well
    [-1.0, -1.0]

How to fix it:
    Check the sign of the loss (it is minimized), and which log-probs are in the numerator of the ratio.
    ``rl_sentinel.signal.loss.ppo.loss`` has both right.

Where it does not apply:
    Losses that claim no ratio of two policies, boundaries that return no loss or do not read log-probs and advantages,
    and cases in which no trained token has a gradient.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.expectations import Expectation, Within
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.on_policy_step import first_step, row_constant


def _applies(boundary: Boundary) -> str:
    if not boundary.claims.ratio:
        return "the boundary claims no ratio of two policies"
    asked = "loss" in boundary.outputs and {"logprob", "advantage"} <= boundary.reads
    return "" if asked else "the boundary has no loss that weighs log-probs by advantages"


def _vary(case: Case, variant: int) -> Case | None:
    held = with_batch(case, row_constant(case.batch))
    return with_draw(held, variant=variant) if bool(case.batch.live.any()) else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    batch = case.batch
    gradient = ask(first_step(ask.boundary, case), gradients=("logprob",)).gradients["logprob"]
    if not bool((gradient[batch.mask] != 0).any()):
        return
    praised, none = batch.advantage > 0, torch.zeros_like(gradient)
    low = torch.where(praised | (batch.advantage == 0), -torch.inf, none)
    high = torch.where(praised, none, torch.inf)
    against = torch.where(batch.mask, gradient * batch.advantage.sign(), none).clamp(min=0)
    row = int(against.amax(dim=1).argmax())
    advantage = float(batch.advantage[row, 0])
    way = "raise" if advantage > 0 else "lower"
    reason = f"row {row} has the advantage {advantage:g}, so a step must {way} its log-probs"
    scale = gradient.abs().max().item()
    yield Within("gradient of logprob", gradient, low, high, batch.mask, scale, reason=reason)


LAW = Law(
    code="GRD002",
    name="gradient-against-advantage",
    stages=frozenset({"policy-loss"}),
    claims=("ratio",),
    applies=_applies,
    vary=_vary,
    expect=_expect,
)
