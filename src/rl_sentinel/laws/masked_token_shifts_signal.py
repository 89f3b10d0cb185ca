"""MSK002 masked-token-shifts-signal: a token that is not trained changes the results of trained tokens.

What it says:
    An untrained token in a row with trained tokens has no influence on the results of trained tokens: moving its
    log-probs, values or advantage changes no output there, and no gradient of the loss.

Why it matters:
    Tool outputs and observations stand between the tokens that the policy wrote. If their log-probs
    enter a ratio, a mean or a bootstrap, the policy is trained on text that it never chose.

A boundary that breaks it:
    >>> import torch
    >>> log_ratio, mask = torch.tensor([[0.0, 4.0]]), torch.tensor([[True, False]])
    >>> (log_ratio.mean(1).unsqueeze(1) * mask).tolist()
    [[2.0, 0.0]]
    >>> ((log_ratio * mask).sum(1) / mask.sum(1)).tolist()
    [0.0]

How to fix it:
    Apply the mask of trained tokens, not the attention mask, before each ratio, mean and bootstrap.
    ``rl_sentinel.signal.advantage.gae.advantages`` steps from a trained token to the next trained one.

Where it does not apply:
    Boundaries that read no mask, or neither log-probs, values nor advantages. Numbers over all tokens, and metrics that
    declare no population. Rewards are never moved: PLC005 is about rewards at masked tokens. MSK004 reports numbers
    that overflow.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import (
    beyond_tokens,
    change_of,
    finite_only,
    magnitude,
    same_tokens,
    slopes,
    tokens_not_trained,
)
from rl_sentinel.search.transforms import moved

#: Column -> how far its masked tokens are moved, in nats or in reward units; one per variant.
AMOUNTS = {
    "logprob": (-1.0, 1.0, -100.0),
    "old_logprob": (-1.0, 1.0, -100.0),
    "ref_logprob": (-1.0, 1.0, -100.0),
    "rollout_logprob": (-1.0, 1.0, -100.0),
    "value": (1.0, 100.0, -100.0),
    "old_value": (1.0, 100.0, -100.0),
    "advantage": (1.0, 100.0, -100.0),
}


def _applies(boundary: Boundary) -> str:
    if "mask" not in boundary.reads:
        return "the boundary reads no mask"
    if set(beyond_tokens(boundary)) == set(boundary.outputs):
        return "the boundary does not declare which rows or tokens its numbers cover"
    return "" if boundary.reads & AMOUNTS.keys() else "the boundary reads neither log-probs, values nor advantages"


def _vary(case: Case, variant: int) -> Case | None:
    batch = case.batch
    hidden = batch.valid & ~batch.mask & batch.live.unsqueeze(1)
    return with_draw(case, variant=variant) if bool(hidden.any()) else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    boundary, batch = ask.boundary, case.batch
    hidden = batch.valid & ~batch.mask & batch.live.unsqueeze(1)
    before = ask(case, gradients=slopes(boundary))
    variant = int(case.draw["variant"] or 0)
    for column in sorted(boundary.reads & AMOUNTS.keys()):
        other = moved(batch, column, hidden, AMOUNTS[column][variant])
        after = ask(with_batch(case, other), gradients=slopes(boundary))
        tokens = torch.nonzero(hidden).tolist()
        change = change_of(column, batch, other, f"{'its' if len(tokens) == 1 else 'their'} {column}")
        reason, scale = tokens_not_trained(tokens), magnitude(other, boundary.reads)
        skip = beyond_tokens(boundary)
        for equal in same_tokens(boundary, batch, before, after, change=change, reason=reason, scale=scale, skip=skip):
            yield finite_only(equal)


LAW = Law(
    code="MSK002",
    name="masked-token-shifts-signal",
    stages=frozenset({"normalize", "kl", "correct", "advantage", "policy-loss", "value-loss", "aggregate", "metric"}),
    applies=_applies,
    vary=_vary,
    expect=_expect,
    variants=len(AMOUNTS["logprob"]),
)
