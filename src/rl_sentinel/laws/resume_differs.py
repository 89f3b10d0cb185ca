"""RES001 resume-differs: a run restored from a checkpoint continues differently.

What it says:
    A state that is saved, and restored by another process, continues without a difference: with the same samples in the
    same order, and the same counters.

Why it matters:
    Long runs are restarted many times. A position that is lost, or a shuffle that starts again, trains some prompts
    twice and others never, and no curve shows it. A counter that starts again changes learning rates and staleness.

A boundary that breaks it:
    >>> import random
    >>> def order(epoch, restored=False):
    ...     return random.Random(0 if restored else epoch).sample(range(4), 4)  # the epoch is not restored
    >>> order(1) == order(1, restored=True)
    False

How to fix it:
    Save what decides the next sample: the position in the data, the epoch, the state of each random generator
    and each counter; restore them before the first sample is drawn.

Where it does not apply:
    Boundaries that keep no state, or that do not report how they continue after a restore (outputs of the
    quantities ``uninterrupted`` and ``resumed``).

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator
from dataclasses import replace

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.expectations.measuring import first_cell
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.core.phrasing import at, two_numbers

#: First words of the two quantities; the words after the point distinguish the pairs of a boundary.
UNINTERRUPTED, RESUMED = "uninterrupted", "resumed"


def _pairs(boundary: Boundary) -> list[tuple[str, str]]:
    """Pairs of output names to compare: one from the uninterrupted run, one from the restored run."""
    by_quantity = {output.quantity: name for name, output in boundary.outputs.items()}
    parts = {quantity: quantity.partition(".") for quantity in by_quantity}
    return [
        (by_quantity[f"{UNINTERRUPTED}.{name}"], by_quantity[quantity])
        for quantity, (kind, _, name) in parts.items()
        if kind == RESUMED and f"{UNINTERRUPTED}.{name}" in by_quantity
    ]


def _applies(boundary: Boundary) -> str:
    return "" if _pairs(boundary) else "the boundary does not report how it continues after a restore"


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    values = ask(case).values
    for uninterrupted, resumed in _pairs(ask.boundary):
        equal = Equal(resumed, values[uninterrupted], values[resumed], None, tolerance=0.0)
        yield replace(equal, says=_sentence(equal))


def _sentence(equal: Equal) -> str:
    """A sentence with both numbers at the first difference; empty if the shapes differ."""
    if equal.expected.shape != equal.observed.shape:
        return ""
    cell = first_cell(equal.broken())
    uninterrupted, resumed = two_numbers(equal.expected[cell].item(), equal.observed[cell].item())
    return f"{equal.output} is {resumed}{at(cell)}, but {uninterrupted} in the same run without a restart"


LAW = Law(
    code="RES001",
    name="resume-differs",
    stages=frozenset({"batch", "step"}),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
)
