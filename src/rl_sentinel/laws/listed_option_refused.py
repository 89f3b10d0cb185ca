"""CFG005 listed-option-refused: a documented value of a setting raises an error.

What it says:
    Each value that the code lists as allowed for a setting, in its documentation, a registry or a type, gives a
    result, or a refusal that names what else it needs. A bare exception, a crash and "unknown value" are neither.

Why it matters:
    A user who selects a listed value follows the documentation. The run ends after its start-up, or falls back to
    another value where a caller catches the exception, and the value is reported as unknown although it is promised.

A boundary that breaks it:
    >>> def kl(gap, kind):  # documented: "k1", "k2"; with "+" the gradient of k2
    ...     if kind == "k1":
    ...         return gap
    ...     if kind == "k2":
    ...         return gap**2 / 2
    ...     raise NotImplementedError(f"unknown kind {kind}")
    >>> kl(1.0, "k1")
    1.0
    >>> kl(1.0, "k1+")
    Traceback (most recent call last):
    NotImplementedError: unknown kind k1+

How to fix it:
    Derive the list and the dispatch from one table. Remove a value that is not implemented from the list, or say in the
    exception what it needs.

Where it does not apply:
    Boundaries that claim no list of allowed values. Only batches that give a result without the value are
    tried, and the value must be refused on all of them.

Seen in:
    See the audit's reports.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.errors import NotApplicable, TargetRaised
from rl_sentinel.core.expectations import Answers, Expectation, Listed
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.companion_cases import companions
from rl_sentinel.search.comparison import SIGNAL_STAGES

#: Batches on which a value must be refused before it is reported.
ENOUGH = 8


def _applies(boundary: Boundary) -> str:
    return "" if boundary.claims.options else "the boundary claims no list of allowed values"


def _refusal(ask: Ask, case: Case) -> str | None:
    """The exception of a call as text; ``""`` if the call returns, None if the case cannot be tried.

    An exception without a message reaches a law as it was raised.
    """
    try:
        ask(case)
    except NotApplicable:
        return None
    except TargetRaised as raised:
        return str(raised)
    except (NotImplementedError, ValueError, AssertionError) as bare:
        return type(bare).__name__
    return ""


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    if _refusal(ask, case) != "":
        return
    output = next(iter(ask.boundary.outputs))
    answered = [one for one in islice(companions(case), 2 * ENOUGH) if _refusal(ask, one) == ""][:ENOUGH]
    for option in ask.boundary.claims.options:
        for value in option.values:
            asked = [replace(one, override={**one.override, option.name: value}) for one in answered]
            refusals = [r for r in (_refusal(ask, one) for one in asked) if r is not None]
            if not refusals:
                continue
            listed = Listed(option.name, str(value))
            refused = all(r and not listed.explains(r.partition(":")[2].strip()) for r in refusals)
            named = f"{option.name}={json.dumps(value)}"
            reason = "a value listed as allowed must give a result, or an error that names what else it needs"
            yield Answers(output, refusals[0] if refused else "", named, reason=reason, listed=listed, key=named)


LAW = Law(
    code="CFG005",
    name="listed-option-refused",
    stages=SIGNAL_STAGES | {"config", "batch"},
    claims=("options",),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
    at_once=True,
    level=lambda _case: "contested",
    intended="A listed value may be planned, or be meant for another function that reads the same setting.",
)
