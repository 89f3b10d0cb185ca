"""DAT003 siblings-share-state: two samples share mutable data.

What it says:
    The data of one sample does not change when the data of another sample is written to.

Why it matters:
    Environments and reward functions write to the data of their sample: a state, a counter, a list
    of what was tried. If the samples of a prompt share one object, each one reads what another
    wrote, and is scored for it. A dataset row that is shared carries the state into the next epoch.

A boundary that breaks it:
    >>> extras = [{"tries": []}] * 2  # two samples of one prompt, one dict
    >>> extras[0]["tries"].append("first answer")
    >>> extras[1]["tries"]
    ['first answer']

How to fix it:
    Copy mutable data for each sample (``copy.deepcopy``) where a prompt is repeated; a list times n repeats the
    same object.

Where it does not apply:
    Boundaries that do not report what happens to each sample when the others are written to (an
    output of the quantity ``changed_by_others``). Objects that cannot be written to may be shared.

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

#: The quantity: the number of other samples to which a write changes this sample.
QUANTITY = "changed_by_others"


def _counts(boundary: Boundary) -> list[str]:
    return [name for name, output in boundary.outputs.items() if output.quantity == QUANTITY and output.axes == "B"]


def _applies(boundary: Boundary) -> str:
    return "" if _counts(boundary) else "the boundary does not report whether a write to one sample changes another"


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    seen = ask(case).values
    for name in _counts(ask.boundary):
        reason = "a write to one sample must not change another"
        yield Equal(name, torch.zeros_like(seen[name]), seen[name], None, tolerance=0.0, reason=reason)


LAW = Law(
    code="DAT003",
    name="siblings-share-state",
    stages=frozenset({"batch"}),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant) if case.batch.rows > 1 else None,
    expect=_expect,
)
