"""CFG001 knob-without-effect.

What it says:
    A setting that is documented to matter matters: two values of it give different outputs, or
    different gradients, on at least one case.

Why it matters:
    A knob that is not connected costs a sweep, and a paper's ablation says that it "had no effect".

A boundary that breaks it:
    >>> def loss(ratio, config):
    ...     clip_high = config.get("clip_ratio_high", 0.2)  # the documented name is clip_high
    ...     return min(ratio, 1 + clip_high)
    >>> loss(1.5, {"clip_high": 0.1}), loss(1.5, {"clip_high": 0.4})
    (1.2, 1.2)

Where it does not apply:
    Boundaries that claim no knob (a setting that is documented to have an effect). Knobs for which
    one of the values is refused.

Seen in:
    See the audit's reports.
"""

import json
from collections.abc import Iterator
from dataclasses import replace

import torch

from rl_sentinel.cases.companions import companions
from rl_sentinel.cases.comparison import slopes
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.claims import Knob
from rl_sentinel.core.errors import NotApplicable, Refused
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Relation

#: Cases that must have been answered under both values before a knob is said to be dead.
ENOUGH = 16


def _differs(ask: Ask, case: Case, knob: Knob) -> bool | None:
    try:
        one, other = (
            ask(replace(case, override={**case.override, knob.name: v}), gradients=slopes(ask.boundary))
            for v in knob.values
        )
    except (NotApplicable, Refused):
        return None
    pairs = [(v, other.values[n]) for n, v in one.values.items()]
    pairs += [(g, other.gradients[n]) for n, g in one.gradients.items()]
    return any(not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def _relate(ask: Ask, case: Case) -> Iterator[Relation]:
    for knob in ask.boundary.claims.knobs:
        answers: list[bool] = []
        for other in companions(case):
            differs = _differs(ask, other, knob)
            answers += [] if differs is None else [differs]
            if differs:
                break
        if any(answers) or len(answers) >= ENOUGH:
            first, second = (json.dumps(v) for v in knob.values)
            story = (
                f"{knob.name} was set to {first}, then to {second}, and all else kept: on each of {len(answers)} "
                "batches, of which one is below, every output and gradient came out the same"
            )
            moved = torch.tensor(float(any(answers)))
            key = f"batches on which {knob.name} matters (1: one or more)"
            yield Relation(key, torch.tensor(1.0), moved, tolerance=0.5, story=story)


LAW = Law(
    code="CFG001",
    name="knob-without-effect",
    stages=frozenset(
        {"reward", "normalise", "kl", "correct", "advantage", "policy-loss", "value-loss", "aggregate", "batch"}
    ),
    claims=("knobs",),
    applies=lambda boundary: "" if boundary.claims.knobs else "it claims no knob",
    vary=lambda case, variant: with_draw(case, variant=variant),
    relate=_relate,
    fails="on-all-cases",
)
