"""ONP001 on-policy-identity-broken: with all policies equal, a ratio or the gradient is wrong.

What it says:
    On fresh samples (current, old, reference and sampling policy are equal, and no regularizer is on) the ratio and
    every importance weight are 1, nothing is clipped or rejected, each KL is 0, and the gradient is that of REINFORCE:
    minus the advantage on trained tokens, times one positive number.

Why it matters:
    On this step all losses with a ratio agree. A loss that differs there applies a wrong sign, weight or mask, or takes
    the wrong policy's log-probs, on all other steps as well.

A boundary that breaks it:
    >>> import torch
    >>> logprob, advantage = torch.tensor([-1.0, -1.0], requires_grad=True), torch.tensor([1.0, -1.0])
    >>> ratio = (logprob - logprob.detach()).exp()
    >>> torch.minimum(-ratio * advantage, -ratio.clamp(1.1, 1.2) * advantage).sum().backward()
    >>> logprob.grad.tolist()  # clipped before it has moved
    [0.0, 1.0]

How to fix it:
    Print the ratio of the first update after sampling: it must be 1. If it is not 1, log-probs are shifted, or belong
    to another temperature or policy. If it is 1, check the sign and the mask of the loss.
    ``rl_sentinel.signal.correction.weights.token_weights`` and ``rl_sentinel.signal.loss.ppo.loss`` satisfy the
    identity.

Where it does not apply:
    Losses that claim no ratio of two policies or read no advantages. The gradient of a loss that claims another
    gradient on the first step. Weights, decisions and KLs of boundaries that do not read two policies, or that read
    anything but log-probs, advantages, groups, lengths and the mask. Means that are declared over all rows, if a row is
    not trained.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.case import Case, with_batch, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.formulas.allowed import LOGPROBS, kind
from rl_sentinel.search.comparison import places
from rl_sentinel.search.on_policy_step import first_step, reinforce, row_constant

#: Quantity -> what it is on the first step.
IDENTITY = {"ratio": 1.0, "weight": 1.0, "keep": 1.0, "kl": 0.0, "clip_fraction": 0.0}

_OWN = LOGPROBS | {"advantage", "mask", "length", "group"}


def _applies(boundary: Boundary) -> str:
    if boundary.stage == "policy-loss":
        if "advantage" not in boundary.reads:
            return "the boundary is not given the advantages"
        return "" if boundary.claims.ratio else "the boundary claims no ratio of two policies"
    if len(LOGPROBS & boundary.reads) < 2 or not boundary.reads <= _OWN:
        return "the boundary does not compare two policies by their log-probs alone"
    known = any(kind(o.quantity) in IDENTITY for o in boundary.outputs.values())
    return "" if known else "the boundary exposes no ratio, weight, decision or KL"


def _vary(case: Case, variant: int) -> Case | None:
    return with_draw(case, variant=variant) if bool(case.batch.live.any()) else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    boundary, first = ask.boundary, first_step(ask.boundary, case)
    if value_of(boundary.claims.scope) == "sequence":
        first = with_batch(first, row_constant(first.batch))
    graded = boundary.stage == "policy-loss" and "loss" in boundary.outputs and "logprob" in boundary.reads
    graded = graded and value_of(boundary.claims.on_policy_gradient) != "other"
    seen = ask(first, gradients=("logprob",) if graded else ())
    compared = [n for n, o in boundary.outputs.items() if kind(o.quantity) in IDENTITY]
    # A KL may be logged only where it has a weight, so numbers are read with the regularizers on.
    values = ask(replace(first, override=case.override)).values if compared else {}
    for name in compared:
        output = boundary.outputs[name]
        if not _counts_dead_rows(output, first.batch):
            number, value = IDENTITY[kind(output.quantity)], values[name].float()
            where = places(output, first.batch, first.batch.live)
            reason = "all policies are equal"
            yield Equal(name, torch.full_like(value, number), value, where, 1.0, reason=reason)
    if graded:
        together = (value_of(boundary.claims.aggregation) or "") in ("token-mean", "token-sum")
        gradient = seen.gradients["logprob"]
        if boundary.own and "ref_logprob" in boundary.reads:  # its KL term cannot be switched off
            idle = with_columns(first.batch, advantage=torch.zeros_like(first.batch.advantage))
            gradient = gradient - ask(with_batch(first, idle), gradients=("logprob",)).gradients["logprob"]
        yield from reinforce(first.batch, gradient, together=together)


def _counts_dead_rows(output: Output, batch: Batch) -> bool:
    """Whether a number is declared over all rows, and some rows have no trained token and therefore count as 0."""
    return output.axes == "" and output.over in ("rows", "all") and not bool(batch.live.all())


LAW = Law(
    code="ONP001",
    name="on-policy-identity-broken",
    stages=frozenset({"policy-loss", "correct", "kl"}),
    claims=("aggregation", "on_policy_gradient", "ratio", "scope"),
    applies=_applies,
    vary=_vary,
    expect=_expect,
)
