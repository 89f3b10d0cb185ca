"""CFG002 knob-with-side-effect: a setting for speed or memory changes a result.

What it says:
    A setting that is documented to change only speed or memory changes no number: two values of it give the same
    outputs and gradients.

Why it matters:
    Token-based batches, chunks and gradient checkpoints are switched on when a run does not fit in memory. If the loss
    depends on them, the learning rate changes with the hardware, and runs cannot be compared.

A boundary that breaks it:
    >>> losses = [1.0, 2.0, 3.0, 4.0]
    >>> def accumulated(parts):
    ...     return sum(sum(part) / len(part) for part in parts) / 2  # two parts are expected
    >>> accumulated([losses[:2], losses[2:]]), accumulated([losses])
    (2.5, 1.25)

How to fix it:
    Divide by counts of the whole mini-batch, which are passed in, not by those of the parts that the setting
    cuts: ``rl_sentinel.signal.minibatches.aggregation``.

Where it does not apply:
    Boundaries that claim no setting without effect; values that are refused. Batches with an untrained row, since the
    split alone may change what such a row counts for (SPL001).

Seen in:
    See the audit's reports.
"""

import json
from collections.abc import Iterator
from dataclasses import replace

from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.claims import Knob
from rl_sentinel.core.errors import NotApplicable, Refused
from rl_sentinel.core.expectations import Change, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Observation
from rl_sentinel.search.comparison import SIGNAL_STAGES, magnitude, same_tokens, slopes


def _pair(ask: Ask, case: Case, knob: Knob) -> tuple[Observation, Observation] | None:
    """The observations under both values; None if one value is refused."""
    wanted = slopes(ask.boundary)
    try:
        one, other = (
            ask(replace(case, override={**case.override, knob.name: value}), gradients=wanted) for value in knob.values
        )
    except (NotApplicable, Refused):
        return None
    return one, other


def _vary(case: Case, variant: int) -> Case | None:
    return with_draw(case, variant=variant) if bool(case.batch.live.all()) else None


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    scale = magnitude(case.batch, ask.boundary.reads)
    for knob in ask.boundary.claims.inert:
        pair = _pair(ask, case, knob)
        if pair is None:
            continue
        first, second = (json.dumps(value) for value in knob.values)
        change = Change(f"changing {knob.name} from {first} to {second}")
        reason = "a setting of speed or memory must change no number"
        for equal in same_tokens(ask.boundary, case.batch, *pair, change=change, reason=reason, scale=scale):
            yield replace(equal, key=f"{knob.name}: {equal.name}")


LAW = Law(
    code="CFG002",
    name="knob-with-side-effect",
    stages=SIGNAL_STAGES | {"batch"},
    claims=("inert",),
    applies=lambda boundary: "" if boundary.claims.inert else "the boundary claims no setting of speed or memory",
    vary=_vary,
    expect=_expect,
)
