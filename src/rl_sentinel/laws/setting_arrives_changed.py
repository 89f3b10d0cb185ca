"""CFG004 setting-arrives-changed: a setting reaches its destination with another name or value.

What it says:
    A setting that is passed on arrives with the same name and the same value: the engine that samples gets the
    temperature, the limits and the penalties of the configuration. An option that the user gives is not replaced by its
    default, and a text stays a text, even if it looks like a number.

Why it matters:
    A sampler with another temperature, or without its top-p limit, samples from another policy than the one that is
    trained. Nothing fails: the ratios drift, or the responses get worse.

A boundary that breaks it:
    >>> def request(settings):
    ...     return {"temperature": settings["top_p"], "top_p": settings["temperature"]}
    >>> request({"temperature": 0.7, "top_p": 0.9})
    {'temperature': 0.9, 'top_p': 0.7}

How to fix it:
    Pass settings by keyword, each from the field of the same name, and add a test that reads the request.

Where it does not apply:
    Boundaries that do not report which value of a setting arrives. They report it in an output of the quantity
    ``setting.NAME``, where ``NAME`` is a setting of the boundary: the number that arrives or, for a text, 1 if it
    arrives unchanged and 0 if not.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, Scalar, Settings, with_draw
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask

#: The first word of the quantity; the second is the name of the setting.
QUANTITY = "setting"


def _passed_on(boundary: Boundary, settings: Settings) -> dict[str, Scalar]:
    """The value of the setting that must arrive in each output, by output name."""
    named = {name: output.quantity.partition(".") for name, output in boundary.outputs.items() if output.axes == ""}
    arriving = {name: settings.get(rest) for name, (first, _, rest) in named.items() if first == QUANTITY}
    return {name: value for name, value in arriving.items() if value is not None}


def _applies(boundary: Boundary) -> str:
    reports = any(_passed_on(boundary, settings) for settings in boundary.settings.values())
    return "" if reports else "the boundary does not report which values of its settings arrive"


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    settings = ask.boundary.settings_of(case)
    seen = ask(case).values
    for name, value in _passed_on(ask.boundary, settings).items():
        number = 1.0 if isinstance(value, str) else float(value or 0)
        expected = torch.tensor(number, dtype=seen[name].dtype, device=seen[name].device)
        yield Equal(name, expected, seen[name], None, scale=abs(number), reason=_reason(value, seen[name]))


def _reason(value: Scalar, seen: torch.Tensor) -> str:
    if isinstance(value, str):
        return "1 means that the text arrives as it was set"
    missing = " (infinity means that no number arrives)" if bool(seen.isinf().any()) else ""
    return f"a setting must arrive as it was set{missing}"


LAW = Law(
    code="CFG004",
    name="setting-arrives-changed",
    stages=frozenset({"config"}),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
)
