"""PLC002 gradient-off-mask: a token that is not trained gets a gradient.

What it says:
    The loss has gradient zero at every position that is not trained: prompts, tool answers,
    padding, rejected rows. Outputs that are claimed masked are exactly zero there.

Why it matters:
    A gradient there trains the model on text that it did not write, or on padding. The loss still falls.

A boundary that breaks it:
    >>> import torch
    >>> logprob, mask = torch.zeros(3, requires_grad=True), torch.tensor([True, True, False])
    >>> (-logprob.mean() * mask.float().mean()).backward()  # masked after the mean
    >>> [round(x, 2) for x in logprob.grad.tolist()]
    [-0.22, -0.22, -0.22]

How to fix it:
    Select trained tokens with ``torch.where`` or by indexing before the sum, with the mask of this batch and at
    the right shift. ``rl_sentinel.signal.reduce.aggregate`` reads nothing else.

Where it does not apply:
    Boundaries that read no mask, or neither have a loss nor claim a masked output (``masked: yes``). Cases in which
    every position is trained, or in which the loss has no gradient at trained positions either.

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
from rl_sentinel.search.comparison import cells, slopes


def _applies(boundary: Boundary) -> str:
    if "mask" not in boundary.reads:
        return "the boundary reads no mask"
    return "" if slopes(boundary) or _masked(boundary) else "the boundary has no gradient, and claims no masked output"


def _masked(boundary: Boundary) -> list[str]:
    claimed = boundary.claims.masked is not None
    return [n for n, output in boundary.outputs.items() if claimed and output.axes in ("B", "B T")]


def _vary(case: Case, variant: int) -> Case | None:
    mask = case.batch.mask
    return with_draw(case, variant=variant) if bool(mask.any()) and not bool(mask.all()) else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    seen = ask(case, gradients=slopes(ask.boundary))
    for name in _masked(ask.boundary):
        value = seen.values[name]
        off = ~(case.batch.mask if value.dim() == 2 else case.batch.live)
        reason = "it is claimed to be 0 at untrained positions"
        yield Equal(name, torch.zeros_like(value), value, off, tolerance=0.0, reason=reason)
    for column, gradient in seen.gradients.items():
        if ask.boundary.own and not bool(case.batch.live.all()) and not bool(gradient.isfinite().all()):
            continue  # callers of a user's function may drop rows that are not trained; DEG001 reports it as a hazard
        off = ~cells(case.batch.mask, gradient)
        if bool((gradient[~off] != 0).any()):
            reason = "this token is not trained"
            yield Equal(f"gradient of {column}", torch.zeros_like(gradient), gradient, off, reason=reason)


LAW = Law(
    code="PLC002",
    name="gradient-off-mask",
    stages=frozenset({"reward", "kl", "advantage", "policy-loss", "value-loss"}),
    claims=("masked",),
    applies=_applies,
    vary=_vary,
    expect=_expect,
)
