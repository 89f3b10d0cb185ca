"""STA001 version-miscounted: generation runs further ahead of training than declared, or less far.

What it says:
    Generation runs ahead of training as far as declared, and no farther: when ``i`` updates of ``B`` samples are
    finished, and samples may be at most ``eta`` updates old, ``(i + eta + 1) * B`` samples have been admitted, not
    counting dropped samples (arXiv 2505.24298, equation 3). The count continues after a restart.

Why it matters:
    Asynchronous training corrects for the staleness of its samples. One sample too many per update, and
    staleness grows without an error; one too few, and generation waits for training, in the end forever.

A boundary that breaks it:
    >>> finished, staleness, batch = 2, 1, 4
    >>> (finished + staleness) * batch  # the update that is being worked on is forgotten
    12
    >>> (finished + staleness + 1) * batch
    16

How to fix it:
    Keep one counter of admitted samples, subtract discarded ones, compare it with the updates that are
    finished, and save it with the checkpoint.

Where it does not apply:
    Boundaries that do not report how many samples they admit (an output of the quantity ``admitted``), with the
    settings ``finished`` and ``max_staleness``; an update takes as many samples as the batch has rows.

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

#: The quantity: samples that were admitted so far, without dropped ones.
QUANTITY = "admitted"


def _counts(boundary: Boundary) -> list[str]:
    return [name for name, output in boundary.outputs.items() if output.quantity == QUANTITY and output.axes == ""]


def _applies(boundary: Boundary) -> str:
    return "" if _counts(boundary) else "the boundary does not report how many samples it admits"


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    settings = ask.boundary.settings_of(case)
    finished, oldest = (int(settings.get(name) or 0) for name in ("finished", "max_staleness"))
    seen = ask(case).values
    for name in _counts(ask.boundary):
        most = torch.tensor(float((finished + oldest + 1) * case.batch.rows), device=seen[name].device)
        reason = f"{finished} updates are finished and samples may be {oldest} updates old"
        yield Equal(name, most, seen[name], None, tolerance=0.0, reason=reason)


LAW = Law(
    code="STA001",
    name="version-miscounted",
    stages=frozenset({"batch"}),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
)
