"""PLC004 tokens-or-samples-lost: a new layout of the batch loses, repeats or moves a token or row.

What it says:
    A boundary that passes a column of the batch on in another layout keeps the numbers at the same response tokens:
    none is lost, repeated, or moved to a neighbor. Padding that is claimed to be zero is zero. A reported number of
    sequences equals the number of rows, without extra empty ones.

Why it matters:
    Between sampling and training, sequences are cut, shifted and padded several times. If one position is off, each
    token is trained with the log-prob or the advantage of the token beside it.

A boundary that breaks it:
    >>> import torch
    >>> of_next_token, prompt, response = torch.tensor([0.1, 0.2, 0.3, 0.4]), 2, 2
    >>> [round(x, 1) for x in of_next_token[prompt : prompt + response].tolist()]  # one position late
    [0.3, 0.4]
    >>> [round(x, 1) for x in of_next_token[prompt - 1 : prompt + response - 1].tolist()]
    [0.2, 0.3]

How to fix it:
    Cut and shift by lengths in one place, and compare the number of tokens before and after:
    ``rl_sentinel.signal.align.response_aligned``, ``rl_sentinel.signal.segments.packed`` and
    ``rl_sentinel.signal.segments.padded``.

Where it does not apply:
    Boundaries that do not claim to keep all rows and tokens (``conserves: yes``), since merging,
    filtering and drawing anew are other tasks. Outputs that are not a column of the batch.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator

import torch

from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.expectations import Equal, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.comparison import cells


def _handed_on(boundary: Boundary) -> list[str]:
    """The outputs that contain a column of the batch, with the same axes."""
    return [
        name
        for name, output in boundary.outputs.items()
        if output.quantity in boundary.reads and COLUMNS[output.quantity]["axes"] == output.axes
    ]


def _counts(boundary: Boundary) -> list[str]:
    """The outputs that contain the number of sequences."""
    return [name for name, output in boundary.outputs.items() if output.quantity == "rows" and output.axes == ""]


def _applies(boundary: Boundary) -> str:
    if not boundary.claims.conserves:
        return "the boundary does not claim to keep all rows and tokens"
    return "" if _handed_on(boundary) or _counts(boundary) else "the boundary passes on no column of the batch"


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    seen = ask(case).values
    for name in _counts(ask.boundary):
        rows = torch.tensor(float(case.batch.rows), device=seen[name].device)
        yield Equal(name, rows, seen[name], None, tolerance=0.0, reason="each row must be counted as one sequence")
    for name in _handed_on(ask.boundary):
        column = getattr(case.batch, ask.boundary.outputs[name].quantity)
        where = cells(case.batch.valid, column) if column.dim() > 1 else None
        reason = "this column must be passed on unchanged"
        yield Equal(name, column, seen[name], where, tolerance=0.0, reason=reason)
        if where is not None and value_of(ask.boundary.claims.padding) == "zero":
            reason, zero = "padding is claimed to be 0", torch.zeros_like(column)
            yield Equal(name, zero, seen[name], ~where, tolerance=0.0, reason=reason, key=f"padding of {name}")


LAW = Law(
    code="PLC004",
    name="tokens-or-samples-lost",
    stages=frozenset({"batch"}),
    claims=("conserves", "padding"),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
)
