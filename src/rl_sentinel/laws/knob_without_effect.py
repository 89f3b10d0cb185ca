"""CFG001 knob-without-effect: a setting has no effect on the loss or the signal.

What it says:
    A setting that is documented to have an effect has one: two values of it give different outputs or gradients on at
    least one case. Each float with a size from 1e-3 to 1e3 that a loss or a signal takes from the configuration is such
    a setting; it is tried at a half and at eight times its value (at most 1, if it is below 1).

Why it matters:
    A setting that is not connected wastes a sweep, and an ablation wrongly reports that it "had no effect".

A boundary that breaks it:
    >>> def loss(ratio, config):
    ...     clip_high = config.get("clip_ratio_high", 0.2)  # the documented name is clip_high
    ...     return min(ratio, 1 + clip_high)
    >>> loss(1.5, {"clip_high": 0.1}), loss(1.5, {"clip_high": 0.4})
    (1.2, 1.2)

How to fix it:
    Follow the setting from where it is read to where it is used: a default of the callee often takes
    precedence. Pass it on, or refuse a value that differs from the default.

Where it does not apply:
    Boundaries whose settings have no number and that claim no knob (a setting that is documented to have an effect).
    Knobs for which one of the values is refused, and settings that are claimed to change only speed or memory.

Seen in:
    See the audit's reports.
"""

import json
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.call import same_numbers
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.claims import Knob
from rl_sentinel.core.errors import NotApplicable, Refused
from rl_sentinel.core.expectations import Change, Expectation, Moves
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.companion_cases import companions
from rl_sentinel.search.comparison import slopes
from rl_sentinel.search.settings_read import settings_read

#: Name of a result -> the result under either value of a knob.
Pairs = dict[str, tuple[Tensor, Tensor]]

#: A smaller number guards a division, a larger one means "no limit": neither needs a visible effect.
SMALL, LARGE = 1e-3, 1e3

#: Number of cases with results under both values that are needed before a knob is reported.
ENOUGH = 16


def _has_signal(boundary: Boundary) -> bool:
    """Whether each number of a setting must have an effect that is compared: on a gradient, or on rows or tokens."""
    losses = ("policy-loss", "value-loss", "aggregate")
    of_tokens = set(slopes(boundary)) - {"logits"}  # a number of a divergence is a share, and at most 1
    return bool(of_tokens) or (
        boundary.stage not in (*losses, "correct", "batch") and any(output.axes for output in boundary.outputs.values())
    )


def _numbers(boundary: Boundary, setting: str) -> dict[str, float]:
    """The floats of a setting that must have an effect: neither 0, nor a guard of a division, nor a very high limit."""
    settings = boundary.settings[setting] if _has_signal(boundary) else {}
    return {name: x for name, x in settings.items() if isinstance(x, float) and SMALL <= abs(x) <= LARGE}


def _knobs(boundary: Boundary, case: Case) -> Iterator[tuple[Knob, ...]]:
    """Each claimed knob; and for each other number that the call reads, knobs for a smaller and a larger value.

    Two knobs are needed, because a result that saturates at a limit may be the same for one of them.
    """
    yield from ((knob,) for knob in boundary.claims.knobs)
    named = {knob.name for knob in (*boundary.claims.knobs, *boundary.claims.inert)}
    numbers = _numbers(boundary, case.setting)
    for name in sorted(settings_read(boundary, case) & numbers.keys() - named) if numbers else ():
        value, cite = numbers[name], "a number of the configuration"
        more = min(value * 8, 1.0) if value < 1 else value * 8  # a share of the rows is at most 1
        yield Knob(name, (value, value / 2), cite), Knob(name, (value, more), cite)


def _applies(boundary: Boundary) -> str:
    numbers = any(_numbers(boundary, setting) for setting in boundary.settings)
    return "" if boundary.claims.knobs or numbers else "the boundary has no setting that must have an effect"


def _pairs(ask: Ask, case: Case, knob: Knob) -> Pairs | None:
    """Each output and gradient at the first and the second value of a knob; None if one value is refused."""
    try:
        one, other = (
            ask(replace(case, override={**case.override, knob.name: v}), gradients=slopes(ask.boundary))
            for v in knob.values
        )
    except (NotApplicable, Refused):
        return None
    pairs = {n: (v, other.values[n]) for n, v in one.values.items()}
    return pairs | {f"gradient of {n}": (g, other.gradients[n]) for n, g in one.gradients.items()}


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    for knobs in _knobs(ask.boundary, case):
        differs: list[bool] = []
        shown: Pairs = {}
        for other in companions(case):
            answers = [_pairs(ask, other, knob) for knob in knobs]
            if answers[0] is None:  # the value that the finding names
                continue
            shown = shown or {n: pair for n, pair in answers[0].items() if n in ask.boundary.outputs}
            results = (pair for pairs in answers if pairs for pair in pairs.values())
            differs.append(not all(same_numbers(*pair) for pair in results))
            if differs[-1]:
                break
        if any(differs) or len(differs) >= ENOUGH:
            knob = knobs[0]
            first, second = (json.dumps(v) for v in knob.values)
            change = Change(f"changing {knob.name} from {first} to {second}")
            moved = torch.tensor(any(differs), device="cpu")
            yield Moves("any output or gradient", change, moved, shown, trials=len(differs), key=knob.name)


LAW = Law(
    code="CFG001",
    name="knob-without-effect",
    stages=frozenset(
        {"reward", "normalize", "kl", "correct", "advantage", "policy-loss", "value-loss", "aggregate", "batch"}
    ),
    claims=("knobs", "inert"),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
    fails="on-all-cases",
)
