"""RAI001 valid-input-raises: a valid batch raises an exception by accident.

What it says:
    A batch that the framework can create gives a result, or an error that explains the refusal. An exception that no
    code raises on purpose, such as an index out of range or an operation on an empty tensor, is neither.

Why it matters:
    A row that ends at its first token, a prompt whose responses are all rejected or a batch of one row occurs
    after hours of a run, and ends it. Where the caller catches the exception, the rows are lost silently.

A boundary that breaks it:
    >>> import torch
    >>> longest = lambda lengths: max(n for n in lengths if n > 0)
    >>> longest([2, 1])
    2
    >>> longest([0])  # the only response is empty
    Traceback (most recent call last):
    ValueError: max() arg is an empty sequence

How to fix it:
    Handle the batch where it is made, or refuse it there with a message that names the row. Guard ``max``,
    ``cat`` and indexing against empty tensors.

Where it does not apply:
    Batches outside of the declared domain of a boundary, and boundaries that take no batch. A ``raise`` or ``assert``
    of the target's own code is a refusal. So is a ``raise`` or ``assert`` in a function that replaces a part of the
    framework in the audit.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw, with_layout
from rl_sentinel.core.errors import NotApplicable, TargetRaised
from rl_sentinel.core.expectations import Answers, Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.companion_cases import companion_pool
from rl_sentinel.search.comparison import SIGNAL_STAGES


def _applies(boundary: Boundary) -> str:
    return "" if boundary.outputs else "the boundary has no outputs"


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    yield _answer(ask, case, "")
    if "micro_batches" in ask.boundary.axes and case.batch.rows > 1:
        with suppress(NotApplicable, TargetRaised):  # a refusal here does not change the first result
            yield _answer(ask, with_layout(case, micro_batches=2), "in two micro-batches")


def _answer(ask: Ask, case: Case, layout: str) -> Answers:
    output = next(iter(ask.boundary.outputs))
    try:
        ask(case)
    except TargetRaised as raised:
        if not raised.accident or not _answers_others(ask, case):
            raise
        batch = f"a batch that callers can create{f' ({layout})' if layout else ''}"
        reason = f"{batch} must give a result or a clear error"
        return Answers(output, str(raised), raised.accident, reason=reason, key=layout)
    return Answers(output, "", key=layout)


def _answers_others(ask: Ask, case: Case) -> bool:
    """Whether the boundary returns for any batch under this setting. If not, its adapter may call it wrongly."""
    for other in companion_pool():
        try:
            ask(replace(case, batch=other.batch, seed=other.seed))
        except (NotApplicable, TargetRaised):
            continue
        return True
    return False


LAW = Law(
    code="RAI001",
    name="valid-input-raises",
    stages=SIGNAL_STAGES | {"batch", "metric", "step"},
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
)
