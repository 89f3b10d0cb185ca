"""PLC002 gradient-off-mask.

What it says:
    The loss has gradient zero at every position that is not trained: prompts, tool answers,
    padding, rejected rows.

Why it matters:
    A gradient there trains the model on text that it did not write, or on nothing at all. The loss
    still falls.

A boundary that breaks it:
    >>> import torch
    >>> logprob, mask = torch.zeros(3, requires_grad=True), torch.tensor([True, True, False])
    >>> (-logprob.mean() * mask.float().mean()).backward()  # masked after the mean
    >>> [round(x, 2) for x in logprob.grad.tolist()]
    [-0.22, -0.22, -0.22]

Where it does not apply:
    Boundaries without a loss, or that read no mask. Cases in which every position is trained, or
    in which the loss has no gradient at the trained ones either.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.cases.comparison import cells, slopes
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Relation


def _applies(boundary: Boundary) -> str:
    if "mask" not in boundary.reads:
        return "it reads no mask"
    return "" if slopes(boundary) else "it has no loss with a gradient to log-probs or values"


def _vary(case: Case, variant: int) -> Case | None:
    mask = case.batch.mask
    return with_draw(case, variant=variant) if bool(mask.any()) and not bool(mask.all()) else None


def _relate(ask: Ask, case: Case) -> Iterator[Relation]:
    for column, gradient in ask(case, gradients=slopes(ask.boundary)).gradients.items():
        off = ~cells(case.batch.mask, gradient)
        if not bool((gradient[~off] != 0).any()):
            continue
        row, position = torch.nonzero((gradient != 0) & off)[0, :2].tolist() if bool(gradient[off].any()) else (0, 0)
        story = f"{column}[{row}, {position}] is not trained; the loss has a gradient there"
        yield Relation(f"gradient of {column}", torch.zeros_like(gradient), gradient, off, story=story)


LAW = Law(
    code="PLC002",
    name="gradient-off-mask",
    stages=frozenset({"policy-loss", "value-loss"}),
    applies=_applies,
    vary=_vary,
    relate=_relate,
)
